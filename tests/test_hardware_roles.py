"""Several processes on one node: who publishes, who goes on where; nothing is counted twice or lost."""

from __future__ import annotations

from hypothesis import given, strategies as st

from gputrace import catalogue, node_handover
from tests import hardware_programs as programs

S, MS, T0, GPU0, GPU1, H100 = (
    programs.S,
    programs.MS,
    programs.T0,
    programs.GPU0,
    programs.GPU1,
    programs.H100,
)
Program, start, counted, word = programs.Program, programs.start, programs.counted, programs.word


def test_only_one_publishes(start):
    first, second = start("first"), start("second")
    for at in (T0 + S, T0 + 2 * S):
        for program in (second, first):
            program.read(at - S, at, S)
            program.tick(at, (at - S, at - S + 100 * MS))
    # Of the second one, everything was known when the first one ticked.
    assert first.states()["charged"] == 200 * MS
    assert first.overlap_ns() == 200 * MS
    assert (first.publishes, second.publishes) == (True, False)
    assert second.hardware.accounts() == []
    names = {name for name, rows in second.hardware.rows("second").items() if rows}
    assert not {name for name in names if name.startswith(("hw.", "gputrace.device", "gputrace.nvml"))}


def test_the_second_goes_on_exactly_where_the_first_ended(start):
    first, second = start("first"), start("second")
    for at in range(T0 + 50 * MS, T0 + S, 50 * MS):
        first.tick(at, (at - 40 * MS, at - 20 * MS))
        second.tick(at, (at - 30 * MS, at - 10 * MS))
    first.close(T0 + S)
    for at in range(T0 + S, T0 + 2 * S, 50 * MS):
        second.tick(at, (at - 30 * MS, at - 10 * MS))
    second.close(T0 + 2 * S)
    found = counted(first, second)
    assert found.charged_ns == first.held_ns + second.held_ns - found.overlap_ns
    assert found.overlap_ns == 19 * 10 * MS
    assert not first.publishes


def test_what_the_first_left_untold_is_unknown_by_the_second(start, tmp_path):
    first, second = start("first"), start("second")
    for program in (second, first):
        program.tick(T0 + S, (T0, T0 + 100 * MS))
        program.read(T0, T0 + S)
    first.tick(T0 + S)
    second.tick(T0 + S + 300 * MS)
    first.tick(T0 + S + 300 * MS)
    first.close(T0 + S + 300 * MS)
    assert word(tmp_path).untold_ns == 300 * MS
    # Of a period that began before it had the role a part is another's.
    second.tick(T0 + 2 * S)
    second.read(T0 + S, T0 + 2 * S)
    second.read(T0 + 2 * S, T0 + 3 * S)
    second.tick(T0 + 3 * S)
    assert second.states() == {"charged": 0, "untracked": 0, "idle": S, "unknown": S}
    assert counted(first, second).all_ns == 3 * S


def test_a_publisher_that_is_killed_is_resumed_where_it_was_seen_last(start):
    first, second = start("first"), start("second")
    for program in (second, first):
        program.tick(T0 + S, (T0, T0 + 100 * MS))
    first.hardware.rows("first")
    seen = counted(first)
    for program in (second, first):
        program.tick(T0 + 2 * S, (T0 + S, T0 + S + 100 * MS))
    # What it counted since, nobody will see.
    dead(first)
    second.tick(T0 + 3 * S)
    assert seen.charged_ns + second.states()["charged"] == 200 * MS
    assert second.hardware.node.taken_over[GPU0].name == H100


def test_the_agent_takes_the_role_and_nothing_is_charged_twice_or_lost(start):
    """Not even what the program counted since a reader looked last, nor in the tick in which it gives way."""
    program = start("program")
    program.tick(T0 + S, (T0, T0 + 100 * MS))
    program.hardware.rows("program")
    program.tick(T0 + 2 * S, (T0 + S, T0 + S + 100 * MS))
    agent = start("agent", T0 + 2 * S + 20 * MS, agent=True)
    agent.hardware.tick(T0 + 2 * S + 30 * MS, None, {})
    assert not agent.publishes
    program.tick(T0 + 2 * S + 50 * MS, (T0 + 2 * S, T0 + 2 * S + 50 * MS))
    assert not program.publishes
    program.tick(T0 + 2 * S + 60 * MS)
    agent.hardware.tick(T0 + 2 * S + 100 * MS, None, {})
    assert agent.publishes
    assert counted(program, agent).charged_ns == program.held_ns
    # And back, when the agent ends.
    program.tick(T0 + 3 * S, (T0 + 2 * S + 60 * MS, T0 + 3 * S))
    agent.hardware.close(T0 + 3 * S, None)
    program.tick(T0 + 4 * S, (T0 + 3 * S, T0 + 3 * S + 1))
    assert program.publishes
    program.close(T0 + 4 * S)
    found = counted(program, agent)
    assert found.charged_ns == program.held_ns
    assert found.overlap_ns == 0
    assert found.all_ns == 4 * S


def test_the_last_one_out_takes_the_role_and_leaves_word(start, tmp_path):
    """Closed before the tick that would have found the role free; another one still lives."""
    first, second, third = start("first"), start("second"), start("third")
    for program in (third, second, first):
        program.tick(T0 + S, (T0, T0 + S))
    first.close(T0 + S)
    second.close(T0 + S)
    # Closed as one that publishes, it has said up to where.
    assert second.states()["charged"] == 0
    assert word(tmp_path).final_ns == T0 + S
    third.tick(T0 + 2 * S, (T0 + S, T0 + 2 * S))
    third.close(T0 + 2 * S)
    assert counted(first, second, third).charged_ns == 2 * S


NOTHING = (counted(),)


class RandomNode:
    """Programs and agents that come and go, at most four at once; every action takes 50 ms.

    Attributes:
        holds: All that any of them held.
        seen: Of each that there ever was, what a reader saw last and where its window begins. The first is
            always there, or nobody would speak for some times.
    """

    def __init__(self, folder):
        self.folder = folder
        self.at_ns = self.read_ns = T0
        self.running = {3: Program(folder, "witness")}
        self.seen = {self.running[3]: NOTHING}
        self.holds = []

    def act(self, action, which, much):
        self.at_ns += 50 * MS
        for program in self.running.values():
            # None of them stalls for longer than a change of hands may take.
            if self.at_ns - program.ticked_ns > 500 * MS:
                program.tick(self.at_ns)
        getattr(self, action)(which, self.running.get(which), much)

    def read(self, _, __, much):
        """Each process reads the driver; only the publisher's readings count."""
        for program in self.running.values():
            program.read(self.read_ns, self.at_ns, much * MS)
        self.read_ns = self.at_ns

    def open(self, which, program, much, *, agent=False):
        if program is None:
            if not any(one.publishes for one in self.running.values()):
                # One that was there takes the role: a new one cannot go on from long before it began.
                self.running[3].tick(self.at_ns)
            program = Program(self.folder, f"{len(self.seen)}", self.at_ns, agent=agent)
            self.running[which] = program
            self.seen[program] = NOTHING

    def agent(self, which, program, much):
        # That it holds is no matter: it stands for yet another program.
        self.open(which, program, much, agent=True)

    def tick(self, _, program, much):
        if program is not None:
            span_ns = self.at_ns - program.ticked_ns
            hold = (program.ticked_ns + span_ns * much // 100, self.at_ns - span_ns * much // 200)
            self.holds += [hold] if much else []
            program.tick(self.at_ns, *([hold] if much else []))

    def show(self, _, program, __):
        if program is not None:
            program.hardware.rows(program.name)
            begins_ns = [one.begins_ns for one in program.hardware.accounts()]
            self.seen[program] = (counted(program), *begins_ns)

    def close(self, which, program, _):
        if program is not None and which != 3:
            self.end(which, program, 0)

    def end(self, which, program, _):
        if program is not None:
            program.close(self.at_ns)
            self.show(which, self.running.pop(which), 0)

    def kill(self, which, program, _):
        """What it counted since it was seen is lost with it; its ring can be read up to its last tick."""
        if program is not None and which != 3:
            # Else whoever publishes would wait a second of real time for a sign of life.
            dead(program)
            del self.running[which]


actions = st.lists(
    st.tuples(
        st.sampled_from(["tick", "tick", "tick", "read", "show", "close", "kill", "open", "agent"]),
        st.integers(0, 3),
        st.integers(0, 40),
    ),
    max_size=80,
)


@given(actions)
def test_whoever_comes_and_goes_the_node_is_counted_once(tmp_path_factory, given_actions):
    """Of what readers saw, charged is the union of all holds, and all states sum to the time, exactly."""
    node = RandomNode(tmp_path_factory.mktemp("node"))
    for action in [*given_actions, *(("end", which, 0) for which in range(4))]:
        node.act(*action)
    found = [seen for seen, *_ in node.seen.values()]
    charged_ns = sum(end - begin for begin, end in united(node.holds))
    assert sum(one.charged_ns for one in found) == charged_ns
    overlap_ns = sum(end - begin for begin, end in node.holds) - charged_ns
    assert sum(one.overlap_ns for one in found) == overlap_ns
    assert [path.name for path in node.folder.glob("*.ring")] == []
    last = node_handover.read(node.folder).get(GPU0)
    if last is not None:
        begins_ns = min(begins_ns for _, *window in node.seen.values() for begins_ns in window)
        assert sum(one.all_ns for one in found) == last.final_ns - last.untold_ns - begins_ns


def united(stretches):
    found = []
    for start_ns, end_ns in sorted(stretches):
        if found and start_ns <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end_ns)
        else:
            found.append([start_ns, end_ns])
    return found


def dead(program):
    """It ended without a word; its ring can be read to its end."""
    program.hardware.node.ring.close()
    program.hardware.forget()


def test_what_the_dead_held_stays_until_a_reader_saw_it(start, tmp_path):
    program, other = start(), start("other")
    other.tick(T0 + S, (T0, T0 + 500 * MS))
    dead(other)
    program.tick(T0 + S)
    program.tick(T0 + 3 * S)
    assert program.states()["charged"] == 500 * MS
    # Were this process killed now, the next one would have to read it again.
    assert len(list(tmp_path.glob("*.ring"))) == 2
    program.hardware.rows("a")
    program.tick(T0 + 5 * S)
    assert len(list(tmp_path.glob("*.ring"))) == 1


def test_where_no_reader_looks_the_dead_do_not_pile_up(start, tmp_path):
    program, other = start(), start("other")
    other.tick(T0 + S, (T0, T0 + 500 * MS))
    dead(other)
    program.tick(T0 + 600 * S)
    assert len(list(tmp_path.glob("*.ring"))) == 2
    program.tick(T0 + 602 * S)
    assert len(list(tmp_path.glob("*.ring"))) == 1


def beside_an_agent(start, **others):
    """A program of which the agent publishes the device."""
    agent = start("agent", agent=True)
    agent.hardware.tick(T0 + MS, None, {})
    return agent, start("program", T0 + 2 * MS, **others)


def hold_and_read(program, periods, *, begins_ns=T0 + S):
    for place in range(periods):
        start_ns, end_ns = begins_ns + place * S, begins_ns + (place + 1) * S
        program.tick(end_ns, (start_ns, end_ns))
        program.read(start_ns, end_ns, 400 * MS, energy_uj=500, energy_source="counter")
        program.tick(end_ns)


def test_energy_and_busy_share_of_one_that_does_not_publish(start):
    _, program = beside_an_agent(start)
    program.tick(T0 + S)
    hold_and_read(program, 10)
    shown = program.hardware.rows("program")
    ((of, periods),) = shown[catalogue.FEATURE_ALONE_PERIODS.name]
    assert (of[catalogue.FEATURE], periods) == ("program", 10)
    assert shown[catalogue.FEATURE_ALONE_BUSY_TIME.name][0][1] == 4.0
    assert [drawn_j for _, drawn_j in shown[catalogue.FEATURE_ENERGY.name]] == [5_000 / 1e6]
    # Whose the device's own energy was, the publisher tells.
    assert shown[catalogue.DEVICE_ENERGY.name] == []
    assert program.hardware.accounts() == []


def test_where_another_program_may_hold_the_device_too_there_is_no_busy_share(start):
    _, program = beside_an_agent(start)
    other = start("other", T0 + 2 * MS)
    other.tick(T0 + 3 * MS, (T0 + 2 * MS, T0 + 3 * MS))
    program.tick(T0 + S)
    hold_and_read(program, 2)
    assert program.hardware.rows("program")[catalogue.FEATURE_ALONE_PERIODS.name] == []
    other.close(T0 + 3 * S)
    hold_and_read(program, 2, begins_ns=T0 + 3 * S)
    ((_, periods),) = program.hardware.rows("program")[catalogue.FEATURE_ALONE_PERIODS.name]
    assert periods == 2


def test_what_a_program_does_not_hold_it_keeps_no_reading_of(start):
    _, program = beside_an_agent(start)
    program.read(T0, T0 + S, S, device=GPU1, energy_uj=5, energy_source="counter")
    program.tick(T0 + 2 * S)
    assert not any(program.hardware.rows("program").values())
    assert program.hardware._own._devices == {}


def test_readings_of_before_a_change_of_roles_are_nobodys(start):
    agent, program = beside_an_agent(start)
    program.tick(T0 + S, (T0 + 500 * MS, T0 + S))
    program.read(T0, T0 + S, S)
    agent.hardware.tick(T0 + S, None, {})
    agent.hardware.close(T0 + S, None)
    program.tick(T0 + S + 50 * MS)
    assert program.publishes
    assert program.states()["untracked"] == 0
