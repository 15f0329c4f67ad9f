"""Which cases this run of pytest asks for: groups of processes run no others."""

import pytest


def asked(request, *tests):
    """The parameters of some test functions, those of each case that was selected.

    Args:
        request: pytest's, of any fixture.
        *tests: functions with `pytest.mark.parametrize`.

    Returns:
        A list of dictionaries, in the order of the cases.
    """
    items = request.session.items
    return [item.callspec.params for item in items if getattr(item, "function", None) in tests]


def asked_values(request, parameter, *tests):
    """The values of one parameter, each once."""
    return list(dict.fromkeys(case[parameter] for case in asked(request, *tests)))


def some_slow(cases, slow):
    """The cases as parameters, of which some run in `make test-all` only."""
    return _some(cases, slow, pytest.mark.slow)


def some_long(cases, long):
    """The cases as parameters, of which some run in `make test-long`, and not in `make test`."""
    return _some(cases, long, pytest.mark.long)


def some_extended(cases, extended):
    """The cases as parameters, of which some run in `make test-extended`, not in `make test`."""
    return _some(cases, extended, pytest.mark.extended)


def _some(cases, marked, mark):
    return [pytest.param(case, marks=mark if case in marked else ()) for case in cases]
