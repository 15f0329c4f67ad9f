"""What a new membership epoch of an elastic job means for the strategies of this process."""

from tf_byteps import runtime
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.strategy.input import shuffle


def begin_epoch(is_first: bool) -> None:
    """Makes workers that were there before agree with new ones. A collective.

    Args:
        is_first: whether this process has not trained yet. If it holds for all, nothing was there
            before; if not, initial values are what an elastic state gives, and nothing else.
    """
    if not runtime.config().elastic:
        return
    mine = {
        "is first": is_first,
        "generation": shuffle.generation(),
        "address": runtime.own_address(),
    }
    everyone = gather_objects("elastic/epoch", mine) if runtime.size() > 1 else [mine]
    shuffle.set_generation(max(worker["generation"] for worker in everyone))
    addresses = [worker["address"] for worker in everyone]
    for strategy in shuffle.strategies():
        strategy.extended.begin_epoch(addresses, all(each["is first"] for each in everyone))
