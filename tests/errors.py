"""What calls raise, for programs of tests."""


def error_of(function, *args, **kwargs):
    """The class and text of what a call raises; "no error" and the result if it raises nothing."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["no error", repr(result)]
