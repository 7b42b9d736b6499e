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
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// SampleInstance is the id of the sample instance. It is constant, so that a second start finds the instance.
const SampleInstance = "5a3c1e5e-6b1d-4c55-9d5a-0d0e5a4b1e00"

//go:embed sample.json
var sample []byte

// demo orders the sample runtime as a platform would, and shows the progress. Its errors are printed and do not
// end the system.
type demo struct {
	osbURL, operatorURL string
	user, password      string
	// transport is for TLS; nil means the default transport.
	transport http.RoundTripper
	// guarded reports whether the operator API requires an access token. token is the token, if there is one.
	guarded bool
	token   string
	// program is the command that starts keb, for hints.
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
	// An earlier run completed it. An operation that was interrupted is answered asynchronously and followed.
	if !answer.Async {
		return d.tell("The sample runtime already exists: instance %s.\n", SampleInstance)
	}
	if err := d.tell("Provisioning a sample runtime through the OSB API: plan azure, instance %s\n", SampleInstance); err != nil {
		return err
	}
	if err := d.follow(ctx, answer.Operation); err != nil {
		return err
	}
	// The broker learns of the end a moment after the orchestrator; the sample is done when the broker reports it.
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

// follow shows the steps of the operation, if the access token allows it.
func (d *demo) follow(ctx context.Context, operation string) error {
	if d.guarded && d.token == "" {
		return d.tell("  To see its steps, set an access token in KEB_TOKEN and run: %s watch %s\n", d.program, operation)
	}
	source, err := operator.New(d.operatorURL, d.token)
	if err != nil {
		return err
	}
	if d.transport != nil {
		source = source.Through(d.transport)
	}
	// The broker publishes after its answer, so the orchestrator may not know the operation yet.
	_, err = view.Follow(ctx, source, operation, &view.Lines{Out: d.out, Prefix: "  "},
		view.FollowConfig{Every: 200 * time.Millisecond, Await: time.Minute})
	return err
}

func (d *demo) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(d.out, format, args...)
	return err
}
