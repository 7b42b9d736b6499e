// Package simulation drives the orchestrator that ships through schedules made
// of numbers from a seed: two of them, each with its dispatcher, outbox, timer and
// recovery, on one store in memory and one bus in memory. Each committed transition
// is held against a model that knows nothing of the engine's own state. The package
// has tests only.
//
// A schedule is a list of choices. Most of them take one task of one orchestrator
// to its next call of the store or the bus: load rows, write them, run a transaction,
// publish one command, publish facts, note what is published, acknowledge. A task is
// a coroutine that stops before each of these calls. A crash, a message that is
// lost, duplicated or overtaken, a clock that jumps, another orchestrator or an
// operator may come between any two of them, and the call itself may fail, or
// succeed without an answer. A schedule that breaks an invariant is cut down to the
// choices that it needs. When its choices are over nothing goes wrong any more, but
// steps that wait still wait and make errors for a while, until one of their two
// budgets is spent.
//
// TestSimulation_PlantedBugs_AreFound plants bugs into what the code is given: the
// engine through dispatch.Deps, and the store, the bus and the messages through their
// interfaces. TestStores_Conformance_Agree holds the store in memory against the one
// in Postgres.
//
// It does not simulate what happens inside a transaction of Postgres, which is one
// action here (rows are locked there; the tests of package store hold that);
// batches of more than three messages; orchestrations of many instances; more than
// one definition of an operation type; workers that say what they execute, since a
// worker executes a command at once; the acknowledgement timers of the bus, whose
// messages come again at any time instead; what a step does to external systems. The
// real thing is killed by make chaos and make soak SUITE=kill.
package simulation
