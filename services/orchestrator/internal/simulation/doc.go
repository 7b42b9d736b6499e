// Package simulation tests the production code of the orchestrator with random
// schedules. A schedule has two orchestrators, each with its dispatcher, outbox,
// timer and recovery, and a store and a bus in memory. Each committed transition is
// compared with a model that is independent of the state of the engine. The package
// contains only tests.
//
// A schedule is a list of choices derived from a seed. Most choices run one task of
// one orchestrator up to its next call of the store or the bus: load rows, write
// rows, run a transaction, publish a command, publish facts, store which facts are
// published, read which messages the streams hold, acknowledge. A task is a coroutine that stops before each call. A crash,
// a lost, duplicated or reordered message, a clock jump, another orchestrator, an
// operator, a hold or an event from outside can intervene between any two calls, and a call can fail, or succeed
// without an answer. A schedule that violates an invariant is shrunk. After the last
// choice there are no more faults, but steps with a wait still wait and fail for a
// while, until one of their budgets is spent. Every operation must then end.
//
// TestSimulation_PlantedBugs_AreFound plants bugs in the dependencies of the code: the
// engine through dispatch.Deps, and the store, the bus and the messages through their
// interfaces. TestStores_Conformance_Agree compares the store in memory with the one
// in Postgres.
//
// The simulation does not cover: the statements of a transaction, which is one action
// here (the tests of package store cover row locks); batches of more than three
// messages; orchestrations; several definitions of an operation type; workers that
// report what they execute, because a worker here executes a command at once; the
// acknowledgement timeouts of the bus, because messages are redelivered at any time;
// and the effects of steps on external systems. make chaos and make soak SUITE=kill
// kill real processes.
package simulation
