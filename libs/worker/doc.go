// Package worker is the SDK for step workers: a team implements a [Step] and passes it to [Main]. The resulting service
// executes the step for operations on request of the orchestrator.
//
// A step has a name and a Run method. Its return values decide how the operation continues:
//
//	return op, 0, nil              // done: the next step runs
//	return op, 10 * time.Second, nil // again after 10 s
//	return op, 0, err              // failed: the operation fails (or skips the step, if its process allows it)
//
// [Wait], [WaitForEvent], [Retry], [RetryWithoutFail], [NotCompleted], [Fail] and [Skip] create the return values of these and two more
// outcomes, with a reason that the API, the facts and the console show. [NewStep] makes a step of a function: it adds a description, retries temporary
// errors, and takes the component and the reason of an error from the client that returned it.
//
// # Guarantees for a step
//
// A step may run more than once: after a retry of itself or another step of its stage, after its process was killed, or
// after a message was delivered twice. So it first checks whether its work is already done, in the
// details that it saved ([Operation.Details]) or in the external system.
//
// The context ends at the command's deadline ([Operation.ExecuteBefore]); the orchestrator then sends the command again.
// Secrets go into the stage memory ([Operation.Remember], [Operation.SetOverrides]), which is deleted when the stage ends.
// Other data that later executions need goes into the details ([Operation.SaveDetails]), which must not contain secrets.
//
// # Duties of the SDK
//
// [Worker] consumes the commands of one worker name, with a limit on parallel executions and optionally on executions
// per second. It sends heartbeats for long steps, turns a panic into a failed result, drops
// late and duplicate commands, asks the orchestrator whether a redelivered command is still current,
// validates and publishes every result, and only then acknowledges the command. It registers as a NATS micro service, exposes
// metrics (keb_worker_*) and returns unfinished work to the bus when it stops.
//
// Package workertest runs a step in a test without a server.
package worker
