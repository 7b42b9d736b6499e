package up

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/cmd/keb/internal/watch"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// SampleInstance is the instance that the demo orders. It is always the same one, so that a second start finds it.
const SampleInstance = "5a3c1e5e-6b1d-4c55-9d5a-0d0e5a4b1e00"

//go:embed sample.json
var sample []byte

// demo orders the sample runtime as a platform would, and shows how it comes into being. Its errors are told, they do not
// end the system.
type demo struct {
	osbURL, operatorURL string
	user, password      string
	// transport is for TLS; nil is the usual one.
	transport http.RoundTripper
	// guarded tells that the operator API asks who looks; token is the answer, if there is one.
	guarded bool
	token   string
	// program is how to call keb in a second terminal.
	program string
	out     io.Writer
}

func (d *demo) run(ctx context.Context) error {
	err := d.provision(ctx)
	if err != nil && ctx.Err() == nil {
		if _, err := fmt.Fprintf(d.out, "The sample was not provisioned: %s\n", err); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

func (d *demo) provision(ctx context.Context) error {
	client, err := osbclient.New(osbclient.Config{
		BaseURL: d.osbURL + "/oauth/cf-eu10", User: d.user, Password: d.password,
		PollEvery: 100 * time.Millisecond, PollAtMost: 500 * time.Millisecond,
	}, &http.Client{Transport: d.transport})
	if err != nil {
		return err
	}
	var order osbclient.Provisioning
	if err := json.Unmarshal(sample, &order); err != nil {
		return fmt.Errorf("read the sample: %w", err)
	}
	began := time.Now()
	answer, err := client.Provision(ctx, SampleInstance, order)
	if e, ok := errors.AsType[*osb.Error](err); ok {
		return fmt.Errorf("the OSB API answers %d: %s", e.Status, e.Description)
	}
	if err != nil {
		return err
	}
	// An earlier run has ended it. One that was killed meanwhile is asynchronous still, and is followed from where it is.
	if !answer.Async {
		return d.tell("The sample runtime is there already: instance %s.\n", SampleInstance)
	}
	if err := d.tell("Provisioning a sample runtime through the OSB API: plan azure, instance %s\n", SampleInstance); err != nil {
		return err
	}
	if err := d.follow(ctx, answer.Operation); err != nil {
		return err
	}
	// The platform's view follows the orchestrator's by a moment; the sample is done when the platform is told so.
	last, err := client.Poll(ctx, SampleInstance, answer.Operation, nil)
	if err != nil {
		return err
	}
	if last.State != osb.StateSucceeded {
		return errors.New(last.Description)
	}
	return d.tell(`The sample runtime is provisioned, after %[1]s. In a second terminal:
  %[2]s operation %[3]s
  %[2]s provision -f examples/requests/aws.json --wait
  %[2]s deprovision %[4]s --wait
`, view.Duration(time.Since(began)), d.program, answer.Operation, SampleInstance)
}

// follow shows the steps of the operation, to whom may see them.
func (d *demo) follow(ctx context.Context, operation string) error {
	if d.guarded && d.token == "" {
		return d.tell("  Its steps are shown with an access token in KEB_TOKEN: %s watch %s\n", d.program, operation)
	}
	source, err := operator.New(d.operatorURL, d.token)
	if err != nil {
		return err
	}
	if d.transport != nil {
		source = source.Through(d.transport)
	}
	// The broker publishes after it has answered, so the orchestrator may not know the operation yet.
	_, err = watch.Follow(ctx, source, operation, &watch.Lines{Out: d.out, Prefix: "  "},
		watch.Config{Every: 200 * time.Millisecond, Await: time.Minute})
	return err
}

func (d *demo) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(d.out, format, args...)
	return err
}
