"""Pages are taken when tokens come; when none is left, a request loses its own, and resumes later (Day 4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tiny_llm.scheduling.levels import LeveledScheduler
from tiny_llm.scheduling.standing import Chunk, Standing


class PreemptiveScheduler(LeveledScheduler):
    """A scheduler that promises no pages: a request that needs one takes it from a request that stands below it.

    A step serves the levels from the highest to the lowest; in each level first those that run, then those that wait.
    A request that waits may take seats and pages from lower levels only.

    A level only rises, and ends at the highest: so two requests can't take the pages from each other for ever, and
    the request that stands above all others always goes on.
    """

    def plan(self) -> list[Chunk]:
        """Choose what each request brings to the next step, as :meth:`Scheduler.plan` does (given code)."""
        self.preempted, self.short = [], False
        self.got.clear()
        return super().plan()

    def line(self) -> Iterator[Standing]:
        """The requests that run, in the order of serving; one that is preempted meanwhile is left out.

        Higher levels first; in a level first the decodes, then the others; each in the order in which they came.
        Before the first request of a level is named, those that wait at higher levels may begin (:meth:`admit`). They
        have their chunk then, and are not named.
        """
        raise NotImplementedError("Week 4 Day 3 Task 3: Begin and resume")

    def take_pages(self, running: Standing, count: int) -> int:
        """Take the pages for some tokens of a request, or for as many of them as there are pages.

        Only where there is no page even for one token, another request is preempted. One is enough: releasing a
        victim frees a page, and that is room for a token at least. ``short`` notes that it has preempted one: no
        request begins in this step any more.

        Args:
            running: the request.
            count: how many tokens it is to bring.

        Returns:
            how many tokens it has pages for now; 0 if there are none, and no request to take them from.
        """
        raise NotImplementedError("Week 4 Day 3 Task 2: Preempt")

    def room(self, running: Standing) -> int:
        """For how many more tokens of a request there are pages: those that it has, and those that are available."""
        raise NotImplementedError("Week 4 Day 3 Task 2: Preempt")

    def victim(self, running: Standing) -> Standing | None:
        """Which request is to lose its pages, so that another one can go on. It changes nothing.

        The one that stands lowest: of the lowest level the one that came last. It must stand below the request that
        goes on, which can't be its own victim, and not be in this step already (``planned`` lists the chunks of the
        step); and releasing it must free a page.

        Args:
            running: the request that goes on.

        Returns:
            the victim, or None if there is none.
        """
        raise NotImplementedError("Week 4 Day 3 Task 1: Levels and victims")

    def preempt(self, victim: Standing) -> None:
        """Take all pages from a request that runs: it waits again, and will resume where the page cache still can.

        Its full pages are published already. Its tokens, its sampler, ``level``, ``rank``, ``waited`` and ``charged``
        stay as they are. ``preempted`` lists its request, ``preemptions`` counts it, and it ``resumes`` from now on.
        It stays preempted if the step fails.
        """
        raise NotImplementedError("Week 4 Day 3 Task 2: Preempt")

    def admit(self, above: int = -1) -> None:
        """Let waiting requests begin or resume, while there are budget, seats and pages.

        Which one is next, :meth:`turn` says. It begins if it may (:meth:`may_begin`), once way is made for it
        (:meth:`make_way`). A request that has to wait is not overtaken, and gives back what was found for it; nor is
        one that has lost its pages in this step, and can't begin again in it. None begins in a step that is
        ``short``: a request that runs lacked a page, and preempted another one. One that resumes is still marked so
        when it runs: if the step fails, it waits in the same place.

        Args:
            above: only requests of higher levels than this begin.
        """
        raise NotImplementedError("Week 4 Day 3 Task 3: Begin and resume")

    def lower(self, waiting: Standing) -> set[Standing]:
        """The requests that run at lower levels than one that waits, and are not in this step yet (given code)."""
        planned = {chunk.running for chunk in self.planned}
        return {each for each in self.running if each.level < waiting.level and each not in planned}

    def may_begin(self, waiting: Standing) -> bool:
        """Whether there are a seat, and pages for all that is due, if each request of :meth:`lower` gives up its own.

        A page that is held by the request that waits, or by one that runs and is not in ``lower``, does not become
        available. It changes nothing.

        Args:
            waiting: the request, with the pages that the cache has found for it.
        """
        raise NotImplementedError("Week 4 Day 3 Task 3: Begin and resume")

    def make_way(self, waiting: Standing) -> None:
        """Preempt requests of :meth:`lower` until there are a seat, and pages for all that is due of one that waits.

        Each time the one that stands lowest. Where no seat is lacking, it must free a page. While pages are lacking,
        one of them always does: a request that has found another one's last page has more pages than that one; so of
        the requests that hold a page which is to become available, the one with the most pages frees its last one.

        Args:
            waiting: a request that may begin (:meth:`may_begin`), with the pages that the cache has found for it.
        """
        raise NotImplementedError("Week 4 Day 3 Task 3: Begin and resume")
