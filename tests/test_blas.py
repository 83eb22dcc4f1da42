import os
import threading
import time
import warnings

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from synthetic import quick, waves
from threadpoolctl import threadpool_info, threadpool_limits

from bochner.blas import sequential_blas, thread_share
from bochner.features import Frequencies
from bochner.rows import ThreadedRows, ordered_map


def blas_threads():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


def all_one():
    return set(blas_threads()) == {1}


def share_of_worker(estimator, X, y):
    """A score that tells how many threads the process that scores may use."""
    return thread_share()


class Counting:
    """A task that counts how many of it run at the same time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now, self.most, self.total = 0, 0, 0

    def __call__(self, features, block, frequencies):
        with self.lock:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)
        time.sleep(0.003)
        with self.lock:
            self.now -= 1
        return np.zeros(1)


def test_blas_is_held_to_one_thread_inside_and_restored_after():
    before = blas_threads()
    with sequential_blas():
        assert all_one()
    assert blas_threads() == before


def test_the_limit_nests():
    before = blas_threads()
    with sequential_blas():
        with sequential_blas():
            assert all_one()
        assert all_one()
    assert blas_threads() == before


def test_the_limit_is_restored_after_an_exception():
    before = blas_threads()
    with pytest.raises(ZeroDivisionError), sequential_blas():
        raise ZeroDivisionError
    assert blas_threads() == before


def test_the_limit_holds_until_the_last_of_overlapping_threads_leaves():
    entered, may_leave = threading.Event(), threading.Event()

    def other():
        with sequential_blas():
            entered.set()
            may_leave.wait(10)

    before = blas_threads()
    thread = threading.Thread(target=other)
    with sequential_blas():
        thread.start()
        assert entered.wait(10)
    assert all_one()  # this thread has left, the other has not
    may_leave.set()
    thread.join()
    assert blas_threads() == before


def test_many_threads_entering_and_leaving_restore_the_limit():
    def often():
        for _ in range(30):
            with sequential_blas():
                pass

    before = blas_threads()
    threads = [threading.Thread(target=often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blas_threads() == before


def test_two_fits_at_once_leave_the_limit_as_it_was():
    X, y = waves(600)
    before = blas_threads()
    models = joblib.Parallel(2, backend="threading")(
        joblib.delayed(quick(max_evals=8).fit)(X, y) for _ in range(2)
    )
    assert blas_threads() == before
    first, second = (model.predict(X) for model in models)
    np.testing.assert_array_equal(first, second)


def test_the_share_of_threads_is_at_least_one_and_at_most_the_cores():
    assert 1 <= thread_share() <= joblib.cpu_count()


def test_reading_the_share_inside_the_limit_does_not_make_it_one():
    outside = thread_share()
    with sequential_blas():
        assert thread_share() == outside


def test_processes_of_a_grid_search_share_the_cores():
    n_jobs = 2
    X, y = waves(40)
    search = GridSearchCV(
        quick(max_evals=2, n_prediction_points=12, n_points=12, n_draws=1),
        {"kl_weight": [0.05, 0.1]},
        scoring=share_of_worker,
        n_jobs=n_jobs,
        cv=2,
        refit=False,
    )
    with joblib.parallel_config("loky"):
        search.fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.all(scores == max(1, joblib.cpu_count() // n_jobs))


def test_fits_in_threads_never_run_more_tasks_at_once_than_the_process_has_threads():
    rng = np.random.default_rng(0)
    engines = [
        ThreadedRows(rng.standard_normal((2_000, 1)), np.zeros((2_000, 1)), n_threads=3,
                     block_rows=100)
        for _ in range(4)
    ]  # fmt: skip
    points, task = Frequencies.of(np.ones((1, 1)), wide=False, again=False), Counting()
    joblib.Parallel(4, backend="threading")(
        joblib.delayed(engine.reduce)(task, points) for engine in engines
    )
    assert task.total == 4 * 20
    assert 1 <= task.most <= thread_share()


def test_an_ordered_map_gives_results_in_order_whatever_takes_longest():
    def slow_at_first(k):
        time.sleep(0.02 if k == 0 else 0.0)
        return k

    assert list(ordered_map(slow_at_first, 10, n_threads=3)) == list(range(10))


def test_an_ordered_map_runs_every_task_once():
    seen = []
    list(ordered_map(seen.append, 50, n_threads=4))
    assert sorted(seen) == list(range(50))


def test_an_ordered_map_of_nothing_is_empty():
    assert list(ordered_map(str, 0, n_threads=4)) == []


def test_an_ordered_map_that_is_left_early_stops_taking_tasks():
    seen = []

    def slowly(k):
        seen.append(k)
        time.sleep(0.01)
        return k

    results = ordered_map(slowly, 200, n_threads=2)
    assert next(results) == 0
    results.close()
    time.sleep(0.1)
    assert len(seen) < 20


def test_a_limit_that_somebody_sets_later_is_seen():
    quick(max_evals=2).fit(*waves(50))
    with threadpool_limits(1):
        assert thread_share() == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forked_during_a_fit_has_its_threads_back():
    before = blas_threads()
    with sequential_blas():
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads about
            child = os.fork()
        if child == 0:
            os.write(writer, repr(blas_threads()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 1_000).decode() == repr(before)
