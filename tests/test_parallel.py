import threading

import pytest
import torch

from fiood_core.parallel import AT_ONCE, side_by_side


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_from_one_core_each_without_gradients():
    def work(i):
        return i, torch.get_num_threads(), torch.is_grad_enabled(), threading.current_thread().name

    results = list(side_by_side(work, range(20)))
    assert [r[0] for r in results] == list(range(20))
    assert {r[1:3] for r in results} == {(1, False)}
    assert all(r[3].startswith("fiood") for r in results)
    assert torch.get_num_threads() == 2


def test_a_single_item_has_all_cores():
    assert list(side_by_side(lambda _: torch.get_num_threads(), [0])) == [2]


def test_an_exception_takes_the_place_of_its_result_and_the_cores_come_back():
    def work(i):
        if i == 3:
            raise ValueError("three")
        return i

    results = side_by_side(work, range(10))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    assert torch.get_num_threads() == 2


def test_no_more_is_begun_than_can_be_worked_on():
    begun = []
    results = side_by_side(begun.append, range(100))
    next(results)
    results.close()
    assert len(begun) <= 4
    assert torch.get_num_threads() == 2


def test_many_cores_do_not_multiply_the_memory_without_end():
    torch.set_num_threads(3 * AT_ONCE)
    together = threading.Barrier(AT_ONCE, timeout=60)

    def work(_):
        together.wait()
        return threading.current_thread().name

    assert len(set(side_by_side(work, range(2 * AT_ONCE)))) == AT_ONCE
