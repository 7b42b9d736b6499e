// Command hello-world-worker runs the steps Hello_World and Hello_Approval. It is a complete worker to copy and change.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

const (
	workerName = "hello-world" // as in overlay/hello-world.yaml
	version    = "1.0.0"

	defaultURL  = "http://127.0.0.1:8099/"
	httpTimeout = 10 * time.Second
)

func main() { worker.Main(workerName, version, steps) }

// steps creates the steps of this worker from its own settings.
func steps(_ context.Context, env worker.Env) ([]worker.Step, error) {
	address := os.Getenv("HELLO_URL")
	if address == "" {
		address = defaultURL
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("HELLO_URL: want an http or https address such as %s", defaultURL)
	}
	env.Log.Info("saying hello", "url", u.Redacted())
	return []worker.Step{NewHelloWorldStep(&http.Client{Timeout: httpTimeout}, address), ApprovalStep{}}, nil
}
