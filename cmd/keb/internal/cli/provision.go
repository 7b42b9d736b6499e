package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// ordered is the JSON output of provision and deprovision.
type ordered struct {
	InstanceID   string `json:"instanceId"`
	OperationID  string `json:"operationId,omitempty"`
	State        string `json:"state"`
	Description  string `json:"description,omitempty"`
	DashboardURL string `json:"dashboardUrl,omitempty"`
}

// ordering holds the flags of keb provision and keb deprovision.
type ordering struct {
	*options
	region  string
	wait    bool
	timeout time.Duration
}

func (o *ordering) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.region, "platform-region", "cf-eu10", "platform region, the last segment of the OSB API path")
	flags.BoolVar(&o.wait, "wait", false, "wait until the operation has ended")
	flags.DurationVar(&o.timeout, "timeout", 24*time.Hour, "how long --wait waits")
}

// client returns an OSB client for the platform region.
func (o *ordering) client() (*osbclient.Client, error) {
	base, err := operator.BaseURL(o.address(o.osbAddr))
	if err != nil {
		return nil, fmt.Errorf("OSB API: %w", err)
	}
	o.warnOfClearText(base, passwordSent)
	if o.region != "" {
		base += "/oauth/" + url.PathEscape(o.region)
	}
	transport, err := o.transport()
	if err != nil {
		return nil, err
	}
	return osbclient.New(osbclient.Config{
		BaseURL: base, User: o.user, Password: o.password, PollEvery: time.Second, PollAtMost: 2 * time.Second,
	}, &http.Client{Transport: transport})
}

func newProvision(o *options) *cobra.Command {
	var file, id string
	order := &ordering{options: o}
	cmd := &cobra.Command{
		Use:   "provision -f FILE",
		Short: "Order a runtime through the OSB API",
		Long: `Order a runtime through the OSB API. FILE holds the JSON body of the OSB request and optionally "instance_id"; "-" is
standard input. Without an id a new one is generated.`,
		Example: "  keb provision -f examples/requests/azure.json --wait",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError("provision needs -f FILE; see examples/requests")
			}
			r, err := readRequest(file, o.In)
			if err != nil {
				return err
			}
			client, err := order.client()
			if err != nil {
				return err
			}
			instance := r.instance(id)
			answer, err := client.Provision(cmd.Context(), instance, r.provisioning())
			if err != nil {
				return o.explainOrder(err, instance)
			}
			return order.finish(cmd.Context(), client, instance, answer, "provisioning")
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "request file")
	cmd.Flags().StringVar(&id, "id", "", "id of the instance")
	order.register(cmd)
	return cmd
}

func newDeprovision(o *options) *cobra.Command {
	var plan string
	var which one
	order := &ordering{options: o}
	cmd := &cobra.Command{
		Use:               "deprovision [INSTANCE]",
		Short:             "Deprovision a runtime through the OSB API",
		Example:           "  keb deprovision INSTANCE --wait\n  keb deprovision -g my-account -c c-1a2b3c4",
		ValidArgsFunction: o.completeInstance,
		RunE: func(cmd *cobra.Command, args []string) error {
			instance, err := which.instanceOr(cmd.Context(), o, args)
			if err != nil {
				return err
			}
			client, err := order.client()
			if err != nil {
				return err
			}
			service, planID, err := order.identify(cmd.Context(), client, instance, plan)
			if err != nil {
				return o.explain(err)
			}
			answer, err := client.Deprovision(cmd.Context(), instance, service, planID)
			if osbclient.IsGone(err) {
				return fmt.Errorf("there is no instance %s; it may have been deleted already", instance)
			}
			if err != nil {
				return o.explain(err)
			}
			return order.finish(cmd.Context(), client, instance, answer, "deprovisioning")
		},
	}
	which.register(cmd)
	cmd.Flags().StringVar(&plan, "plan", "", "name of the instance's plan; looked up if not given")
	order.register(cmd)
	return cmd
}

// identify returns the service and plan ids that OSB requires in a deprovisioning. An instance that is still being provisioned
// cannot be fetched; its plan then comes from the orchestrator.
func (o *ordering) identify(ctx context.Context, client *osbclient.Client, instance, plan string) (serviceID, planID string, err error) {
	if plan == "" {
		found, err := client.GetInstance(ctx, instance)
		if err == nil && found.ServiceID != "" && found.PlanID != "" {
			return found.ServiceID, found.PlanID, nil
		}
		if err != nil && !osbclient.IsNotFound(err) && !isConflict(err) {
			return "", "", err
		}
		if plan, err = o.planOf(ctx, instance); err != nil {
			return "", "", err
		}
	}
	catalog, err := client.Catalog(ctx)
	if err != nil {
		return "", "", err
	}
	var known []string
	for _, service := range catalog.Services {
		for _, p := range service.Plans {
			if p.Name == plan {
				return service.ID, p.ID, nil
			}
			known = append(known, p.Name)
		}
	}
	return "", "", usageError("unknown plan %q; allowed: %s", plan, strings.Join(known, ", "))
}

// isConflict reports whether the instance has an operation in progress, for which OSB brokers answer 422.
func isConflict(err error) bool {
	e, ok := errors.AsType[*osb.Error](err)
	return ok && e.Status == 422
}

// planOf returns the plan of an instance from the orchestrator.
func (o *ordering) planOf(ctx context.Context, instance string) (string, error) {
	client, err := o.operatorClient()
	if err != nil {
		return "", err
	}
	list, _, err := client.Operations(ctx, operator.Filter{Instance: instance, PageSize: 1})
	if err != nil {
		return "", fmt.Errorf("find the plan of instance %s (or set it with --plan): %w", instance, err)
	}
	if len(list.Data) == 0 {
		return "", fmt.Errorf("there is no instance %s; keb operations shows the instances of all operations", instance)
	}
	return list.Data[0].Plan, nil
}

// finish prints the broker's answer, and with --wait waits for the end of the operation.
func (o *ordering) finish(ctx context.Context, client *osbclient.Client, instance string, answer *osbclient.Answer, what string) error {
	result := ordered{
		InstanceID: instance, OperationID: answer.Operation, State: string(osb.StateSucceeded), DashboardURL: answer.DashboardURL,
	}
	if answer.Async {
		result.State = string(osb.StateInProgress)
	}
	if !o.wait || !answer.Async {
		return o.print(result, what)
	}
	if _, err := fmt.Fprintf(o.progress(), "%s of instance %s accepted, operation %s\n", what, instance, answer.Operation); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	told := ""
	last, err := client.Poll(ctx, instance, answer.Operation, func(l osb.LastOperation) {
		line := string(l.State)
		if l.Description != "" {
			line += ": " + view.OneLine(l.Description)
		}
		if line != told {
			told = line
			_, _ = fmt.Fprintf(o.progress(), "%s %s\n", view.Time(time.Now()), line) // the result is printed in the end
		}
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("operation %s has not ended within %s and continues; follow it: keb watch %s", answer.Operation, o.timeout, answer.Operation)
	case err != nil:
		return o.explain(err)
	}
	result.State, result.Description = string(last.State), last.Description
	if o.json() {
		if err := printJSON(o.Out, result); err != nil {
			return err
		}
	}
	if last.State != osb.StateSucceeded {
		return fmt.Errorf("%s of instance %s failed: %s", what, instance, last.Description)
	}
	return nil
}

// print prints the broker's answer without waiting for the operation.
func (o *ordering) print(r ordered, what string) error {
	if o.json() {
		return printJSON(o.Out, r)
	}
	text := fmt.Sprintf("%s of instance %s: nothing to do\n", what, r.InstanceID)
	if r.OperationID != "" {
		text = fmt.Sprintf("%s of instance %s accepted; follow it: keb watch %s\n", what, r.InstanceID, r.OperationID)
	}
	_, err := fmt.Fprint(o.Out, text)
	return err
}

// explain adds to an error of the OSB API what to do about it.
func (o *options) explain(err error) error {
	e, ok := errors.AsType[*osb.Error](err)
	switch {
	case ok && e.Status == 401:
		return errors.New("the OSB API rejected user and password; set KEB_OSB_USER and KEB_OSB_PASSWORD")
	case ok:
		return fmt.Errorf("the OSB API answers %d: %s", e.Status, e.Description)
	}
	if u, ok := errors.AsType[*url.Error](err); ok && !errors.Is(err, context.Canceled) {
		return &operator.UnreachableError{Address: o.osbAddr, Err: u}
	}
	return err
}

// explainOrder is explain for an order of an instance. If it is not known whether the broker has accepted the order, the error has the id of
// the instance, which may have been generated.
func (o *options) explainOrder(err error, instance string) error {
	explained := o.explain(err)
	if answer, ok := errors.AsType[*osb.Error](err); ok && answer.Status < http.StatusInternalServerError {
		return explained
	}
	if _, ok := errors.AsType[*operator.UnreachableError](explained); ok && !operator.EffectUnknown(explained) {
		return explained
	}
	// The text, because Main does not print an interruption.
	return fmt.Errorf("%s; it is not known whether the order of instance %s was accepted: repeat it with --id %s", explained.Error(), instance, instance)
}
