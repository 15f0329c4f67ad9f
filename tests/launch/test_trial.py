"""`bpslaunch test`: an exchange and a fit, in a job of its own. `bpslaunch env`."""


def test_it_says_in_a_line_that_jobs_work(launch):
    running = launch("test", "-np", "2", "--servers", "1")
    assert running.wait(300) == 0, running.out + running.err
    (line,) = running.out.splitlines()
    assert line == (
        "bpslaunch test: all is well: 2 workers (CPU) added up a tensor and trained 10 steps with "
        "equal weights"
    )


def test_it_shows_what_failed(launch):
    running = launch("test", DMLC_INTERFACE="nope0")
    assert running.wait(300) == 1
    assert "DMLC_INTERFACE is 'nope0'" in running.out
    assert running.err == "bpslaunch test: jobs do not work here: see above\n"


def test_env_has_versions_and_variables_but_no_secrets(launch):
    variables = {"BYTEPS_JOB_SECRET": "0123456789abcdef", "BYTEPS_IO_THREADS": "3"}
    running = launch("env", **variables, TF_VAR_x="of another program")
    assert running.wait() == 0, running.err
    reported = dict(line.split(":", 1) for line in running.out.splitlines())
    assert reported["BYTEPS_IO_THREADS"].strip() == "3"
    assert reported["BYTEPS_JOB_SECRET"].strip() == "(hidden)" and "TF_VAR_x" not in reported
    assert {"tf_byteps", "Python", "TensorFlow", "keras", "processors", "GPUs"} <= set(reported)
