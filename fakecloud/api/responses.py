"""Answers that are no ordinary ones: problems, and no answer at all."""

from collections.abc import Callable

from aiohttp import web

from fakecloud.models.problems import Problem


def problem_response(problem: Problem) -> web.Response:
    return web.Response(
        status=problem.status,
        text=problem.model_dump_json(by_alias=True),
        content_type="application/problem+json",
    )


class Unanswered(web.Response):
    """Stands for the answer that the client never gets: once `holds` is false, the connection is reset."""

    def __init__(self, holds: Callable[[], bool]) -> None:
        super().__init__()
        self.holds = holds
