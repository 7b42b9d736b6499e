// Package lms is the worker of the logging service of Kyma 1. It creates a tenant, which the runtimes of a global account in one region
// share, and gets the certificate of Fluent Bit (docs/contracts/lms.md). The overlay kyma-1 enables its steps. An error of a step
// does not fail a provisioning.
package lms
