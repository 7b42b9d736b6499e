// Package contract runs a worker against the contract of the bus: it plays the orchestrator and the broker on a NATS server of
// its own, with the streams, the consumer and the users of production, sends commands, breaks connections, stops and kills the
// worker, and reports what the worker did wrong, check by check. It knows nothing of the language that the worker is written in.
//
// The command line is keb worker check. A Go test uses package contracttest.
package contract
