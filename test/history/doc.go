// Package history decides whether a recorded history of requests to the broker is one that KEB promises. It has no I/O except for reading and
// writing JSON lines: the same lines always get the same verdict.
//
// Its tests are a suite, too, `make e2e SUITE=history`: 50 clients change 25 instances in an installation with faults, every invocation is
// recorded, and the history is checked.
//
// A history has invocations of the OSB API (provision, update, deprovision, get, poll, bind, get binding, unbind), and the ledger that was read
// when everything had ended: the objects of the external systems, the transitions in the database, and the facts on the bus.
//
// # Outcomes
//
// An invocation has one of three outcomes. "ok" is an answer 2xx. "failed" is an answer 4xx: the broker changed nothing. "unknown" is every
// other end: no answer, a timeout, 408, 5xx. An unknown request may take effect once at any time after its call, even after all other
// invocations, or never. An unknown read is ignored.
//
// # The register
//
// Each instance is a register of accepted requests, and its history must be linearizable: every invocation takes effect at one moment between its
// call and its return, and the answers are those of the broker one after the other. Porcupine searches for these moments, instance by instance.
//
// The state is the phase, the newest operation with its end, the value of the order, the current value, and the value that a running update
// will set. The value stands for all parameters. The phases and their answers:
//
//	phase        provision        update           deprovision  get    poll of the newest operation
//	absent       202              404              410          404    succeeded, 410
//	ordered      202 same or 409  422              202          404    in progress
//	refused      409              422              202          404    failed
//	ready        200 same or 409  200 same or 202  202          value  succeeded; failed after a failed update
//	updating     200 same or 409  202 same or 422  202          422    in progress
//	deleting     422              422              202 same     404    in progress
//	undeleted    409              422              202          404    failed
//
// "202 same" and "200 same" are the answers to a repetition: 202 names the running operation. A new operation has a new id. After a failed update
// an update to the current value is a new operation. An operation ends by itself at any time: ordered becomes ready or refused, updating becomes
// ready, deleting becomes absent or undeleted. If any poll saw the end of an operation, it has that end in every order of events. A poll
// of an older operation must show an end: a deprovisioning ends the operation that it replaces, for the platform, when it is accepted. An operation
// whose answer was lost has an unknown id until an answer names it. A binding that is answered 201 needs a ready instance; other answers
// to bindings do not depend on the register.
//
// # Other rules
//
// Check lists them: one violation names its rule, and the invocations that contradict it.
package history
