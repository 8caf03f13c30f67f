"""What the cloud knows: the present state, earlier ones while a fault asks for them, and the ledger."""

from collections.abc import Callable, Iterable, Sequence

from fakecloud.cloud.history import History
from fakecloud.cloud.ledger import Entry, Ledger
from fakecloud.cloud.loading import restore
from fakecloud.cloud.store import Store
from fakecloud.state.records import Record, State

_NOTHING = Entry((), ())


class Repository:
    """What is written is stored first and visible then; what can't be stored leaves no trace. `clock` is monotonic, in seconds."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._history = History(clock)
        self.state = State()
        self.ledger = Ledger()

    def open(self) -> None:
        """Take up what was stored. Raises StoreError."""
        found = restore(self._store)
        self.state, self.ledger = found.state, found.ledger

    async def write(self, state: State, records: Sequence[Record], entry: Entry = _NOTHING) -> None:
        """Make `state` the present one; the rows are what differs from the one before. Raises StoreError."""
        rows = (*records, *entry.records)
        if rows:
            await self._store.commit(rows)
        self.ledger.keep(entry)
        if state is not self.state:
            self.state = state
            self._history.note(state)

    async def clear(self, records: Iterable[Record]) -> None:
        """Forget everything: the state, of which these are the rows, and the ledger. Raises StoreError."""
        await self.write(State(), [*records, *self.ledger.all_records()])
        self.ledger = Ledger()

    def remember(self, seconds: float) -> None:
        """From now on reads may look back so far; 0 forgets everything but the present."""
        self._history.keep(seconds, self.state)

    def ago(self, seconds: float) -> State:
        """What a read sees that lags so many seconds behind."""
        return self._history.ago(seconds, self.state)
