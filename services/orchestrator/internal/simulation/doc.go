// Package simulation proves the engine together with the contract of its shell:
// schedules made of numbers from a seed drive two orchestrators on one database
// through everything that may go wrong, and each committed transition is held
// against a model that knows nothing of the engine's own state. The package has
// tests only.
//
// A schedule is a list of choices. Each is one action of one task: take messages,
// commit, publish one command, take the answer of the bus, admit, acknowledge. A
// crash, a message that is lost, doubled or overtaken, a clock that jumps, another
// orchestrator or an operator may come between any two of them. A schedule that
// breaks an invariant is cut down to the choices that it needs. When its choices
// are over nothing goes wrong any more, but steps that wait still wait and make
// errors for a while, until one of their two budgets is spent.
//
// What the model's shell does is what packages dispatch, timer and store do: read
// from a cache or the database, write all rows of a batch by compare-and-set, fold
// what was overtaken again for five rounds, publish, purge, free instances, admit,
// acknowledge; publish once more at a start; take in requests and make way for a deprovisioning; take up what is
// due, unanswered or lost; carry out what an operator asks for. A commit or a publication
// may fail, or succeed without an answer.
//
// What it does not model: what happens inside a transaction of Postgres, which is
// one action here (rows are locked there; the tests of package store hold that);
// batches of more than three messages; orchestrations of many instances; more than
// one definition of an operation type; dead letters; the acknowledgement timers of
// the bus, whose messages come again at any time instead; what a step does to
// external systems. The real thing is killed by make chaos and make soak SUITE=kill.
package simulation
