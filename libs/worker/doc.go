// Package worker is the SDK for step workers: a team writes a [Step], gives it to [Main], and has a service that
// executes that step of an operation whenever the orchestrator asks for it.
//
// A step is a name and a Run method. Its three return values say how the operation goes on:
//
//	return op, 0, nil              // done: the next step runs
//	return op, 10 * time.Second, nil // again after 10 s
//	return op, 0, err              // failed: the operation fails (or passes over the step, if its process says so)
//
// [Wait], [Retry], [RetryWithoutFail], [NotCompleted], [Fail] and [Skip] make the return values of these and two more outcomes, with
// a reason that people can read in the API, the facts and the console.
//
// # What a step may rely on
//
// A step may run more than once: because it asked for it, because an earlier or later step of its stage did, because
// its process was killed, or because a message came twice. So it first looks whether its work is already done, in the
// details it saved ([Operation.Details]) or in the external system itself.
//
// The context ends when the command's time is over ([Operation.ExecuteBefore]); the orchestrator then asks again.
// Secrets go into the stage memory ([Operation.Remember], [Operation.SetOverrides]) and are gone when the stage ends.
// Everything else that must survive goes into the details ([Operation.SaveDetails]), which hold no secret.
//
// # What the SDK does
//
// [Worker] consumes the commands of one worker name with a limit on what runs at once and, if wanted, on how much is
// started per second. It tells the bus that a long step is still alive, turns a panic into a failed result, drops
// commands that came too late or twice, asks the orchestrator whether it still waits for one that was delivered before,
// checks every result, publishes it and only then acknowledges the command. It registers as a NATS micro service, keeps
// metrics (keb_worker_*) and hands unfinished work over when it is stopped.
//
// Package workertest runs a step in a test without a server.
package worker
