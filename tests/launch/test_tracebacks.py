"""What bpslaunch shows of a failed process's last lines."""

from tf_byteps.launch.tracebacks import telling_lines


def test_a_report_has_both_ends_of_a_long_traceback():
    lines = ["before", "Traceback (most recent call last):", '  File "train.py", line 3']
    lines += [f"  {number}" for number in range(100)] + ["KeyError: 'accurcy'"]
    shown = telling_lines(lines)
    assert len(shown) == 15
    assert shown[:2] == lines[1:3] and shown[-1] == lines[-1] and "  ..." in shown
    assert telling_lines(lines[:3]) == lines[1:3]
    assert telling_lines([str(n) for n in range(20)]) == [str(n) for n in range(5, 20)]


def test_frames_of_packages_are_left_out():
    lines = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 17, in <module>
    model.fit(rows, callbacks=[Logging()])
  File "/venv/lib/python3.11/site-packages/keras/src/utils/traceback_utils.py", line 122, in handler
    raise e.with_traceback(filtered_tb) from None
  File "/home/me/train.py", line 9, in on_epoch_end
    print(logs["accuracie"])
          ~~~~^^^^^^^^^^^^^
KeyError: 'accuracie'""".splitlines()
    assert telling_lines(lines) == [*lines[:3], *lines[5:7], lines[-1]]
    # Without a frame of the program's all are shown.
    assert telling_lines([lines[0], *lines[3:5], lines[-1]]) == [lines[0], *lines[3:5], lines[-1]]
