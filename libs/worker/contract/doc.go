// Package contract checks a worker against the contract of the bus. It acts as orchestrator and broker on its own NATS server,
// with the streams, consumers and users of production. It sends commands, breaks connections, stops and kills the
// worker, and reports violations by check. The worker may be written in any language.
//
// The command line is keb worker check. A Go test uses package contracttest.
package contract
