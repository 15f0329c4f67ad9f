"""bpslaunch: starts all processes of a job, here or over ssh, and ends them together."""
