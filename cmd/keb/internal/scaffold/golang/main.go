// Command my-worker runs the steps My_Worker_Create and My_Worker_Delete.
package main

import (
	"context"

	"github.com/kyma-project/keb/libs/worker"
)

const version = "0.1.0"

func main() {
	worker.Main(workerName, version, func(context.Context, worker.Env) ([]worker.Step, error) {
		return steps(noSystem{}), nil
	})
}

// noSystem stands in for the client of your system. Replace it.
type noSystem struct{}

// Create implements System.
func (noSystem) Create(_ context.Context, name string) (string, error) { return "record-" + name, nil }

// Delete implements System.
func (noSystem) Delete(context.Context, string) error { return nil }
