package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/api/operator"
)

// runtimeStates are the values of --state of keb runtimes.
var runtimeStates = []string{
	"succeeded", "provisioning", "updating", "upgrading", "failed", "error", "deprovisioning", "suspended", "deprovisionincomplete",
	"deprovisioned", "all",
}

// runtimeFilter holds the flags that select runtimes.
type runtimeFilter struct {
	accounts, subaccounts, instances, runtimes, regions, plans, shoots, states []string
	expired                                                                    bool
}

func (f *runtimeFilter) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, list := range []struct {
		into              *[]string
		name, short, does string
	}{
		{&f.shoots, "shoot", "c", "only the runtime of this shoot"},
		{&f.accounts, "account", "g", "only runtimes of this global account"},
		{&f.subaccounts, "subaccount", "s", "only runtimes of this sub-account"},
		{&f.instances, "instance-id", "i", "only the runtime of this instance"},
		{&f.runtimes, "runtime-id", "r", "only this runtime"},
		{&f.regions, "region", "R", "only runtimes in this region of the hyperscaler"},
		{&f.plans, "plan", "p", "only runtimes of this plan"},
		{&f.states, "state", "S", "only runtimes in this state: " + strings.Join(runtimeStates, ", ")},
	} {
		flags.StringSliceVarP(list.into, list.name, list.short, nil, list.does+"; separate several values with commas")
	}
	flags.BoolVar(&f.expired, "expired", false, "only runtimes that have expired")
}

// query returns the query parameters of the broker API.
func (f *runtimeFilter) query() (url.Values, error) {
	for _, state := range f.states {
		if !slices.Contains(runtimeStates, state) {
			return nil, usageError("--state %q is not a runtime state; allowed: %s", state, strings.Join(runtimeStates, ", "))
		}
	}
	q := url.Values{}
	for name, values := range map[string][]string{
		"account": f.accounts, "subaccount": f.subaccounts, "instance_id": f.instances, "runtime_id": f.runtimes, "region": f.regions,
		"plan": f.plans, "shoot": f.shoots, "state": f.states,
	} {
		if len(values) > 0 {
			q[name] = values
		}
	}
	if f.expired {
		q.Set("expired", "true")
	}
	return q, nil
}

// Values of --events.
const (
	eventsAll  = "all"
	eventsNone = "none"
)

var eventLevels = []string{eventsAll, "info", "error", eventsNone}

// listing holds the flags of keb runtimes.
type listing struct {
	*options
	filter                         runtimeFilter
	ops, kymaConfig, clusterConfig bool
	events                         string
}

func newRuntimes(o *options) *cobra.Command {
	l := &listing{options: o}
	cmd := &cobra.Command{
		Use:     "runtimes",
		Aliases: []string{"runtime", "rt"},
		Short:   "List runtimes",
		Long: `List the runtimes of the broker. A runtime is listed if it matches one value of each given flag.
Suspended and deprovisioned runtimes are listed only if --state selects them.`,
		Example: "  keb runtimes --plan azure,aws --state failed --ops\n" +
			"  keb runtimes -g my-account -o custom=SHOOT:shootName,STATE:status.state,VERSION:kymaVersion\n" +
			"  keb runtimes -c c-1a2b3c4 --events=error",
		Annotations: map[string]string{listAnnotation: "runtimes"},
		Args:        exactly(),
		RunE:        func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context()) },
	}
	l.filter.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&l.ops, "ops", false, "show all operations, not only the newest of each type")
	flags.BoolVar(&l.kymaConfig, "kyma-config", false, "include the Kyma configuration, for -o json and custom")
	flags.BoolVar(&l.clusterConfig, "cluster-config", false, "include the cluster configuration, for -o json and custom")
	flags.StringVar(&l.events, "events", eventsNone, "show events of this level: "+strings.Join(eventLevels, ", "))
	flags.Lookup("events").NoOptDefVal = eventsAll
	completeFlag(cmd, "state", runtimeStates)
	completeFlag(cmd, "events", eventLevels)
	return cmd
}

func (l *listing) run(ctx context.Context) error {
	if !slices.Contains(eventLevels, l.events) {
		return usageError("--events %q is not allowed; allowed: %s", l.events, strings.Join(eventLevels, ", "))
	}
	if (l.kymaConfig || l.clusterConfig) && l.text() {
		return usageError("--kyma-config and --cluster-config need -o json or -o custom")
	}
	q, err := l.filter.query()
	if err != nil {
		return err
	}
	for name, wanted := range map[string]bool{"kyma_config": l.kymaConfig, "cluster_config": l.clusterConfig} {
		if wanted {
			q.Set(name, "true")
		}
	}
	if !l.ops {
		q.Set("op_detail", "last")
	}
	items, err := l.runtimes(ctx, q)
	if err != nil {
		return err
	}
	if l.events != eventsNone {
		if items, err = l.withEvents(ctx, items); err != nil {
			return err
		}
	}
	if !l.text() {
		return l.printList(items)
	}
	return l.table(items)
}

// runtimes fetches all pages. On a terminal it shows a progress bar.
func (o *options) runtimes(ctx context.Context, q url.Values) ([]json.RawMessage, error) {
	client, err := o.brokerClient()
	if err != nil {
		return nil, err
	}
	bar := o.bar()
	items, err := client.Runtimes(ctx, q, func(got, total int) error {
		if _, ok := terminal(o.Err); !ok || got == total {
			return nil
		}
		return bar.Set(got, total, "runtimes")
	})
	if cleared := bar.Clear(); err == nil {
		err = cleared
	}
	return items, err
}

// runtime is a runtime with its events.
type runtime struct {
	broker.Runtime
	Events []operator.Event `json:"events"`
}

func (l *listing) table(items []json.RawMessage) error {
	if len(items) == 0 {
		_, err := fmt.Fprintln(l.Out, "no runtimes")
		return err
	}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "INSTANCE\tSHOOT\tPLAN\tREGION\tACCOUNT\tSUBACCOUNT\tSTATE\tKYMA\tAGE\t")
	details := map[int][]string{} // lines below a runtime
	for i, raw := range items {
		var r runtime
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("list runtimes: %w", err)
		}
		state := string(r.Status.State)
		if !r.Status.ExpiredAt.IsZero() {
			state += ", expired"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.InstanceID, r.ShootName, r.ServicePlanName, r.Region, r.GlobalAccountID,
			r.SubAccountID, state, r.KymaVersion, view.Duration(time.Since(r.Status.CreatedAt)))
		details[i] = l.details(&r)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(string(trimLines(text.Bytes())), "\n"), "\n")
	for i, line := range lines {
		out.WriteString(line + "\n")
		for _, detail := range details[i-1] {
			out.WriteString("  " + detail + "\n")
		}
	}
	_, err := io.WriteString(l.Out, out.String())
	return err
}

// details returns the lines below a runtime.
func (l *listing) details(r *runtime) []string {
	var lines []string
	if l.ops {
		for _, op := range r.Status.Operations() {
			line := fmt.Sprintf("%s %s %s: %s", op.OperationID, dryRun(string(op.Type), op.DryRun), op.State, view.OneLine(op.Description))
			if len(op.NotCompleted) > 0 {
				line += "; not completed: " + strings.Join(op.NotCompleted, ", ")
			}
			lines = append(lines, line)
		}
	}
	for _, e := range r.Events {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", view.Time(e.CreatedAt), e.Level, e.OperationID, view.OneLine(e.Message)))
	}
	return lines
}

// askedAtOnce is the maximum number of instances in one request for events.
const askedAtOnce = 50

// withEvents adds the events of the instances, oldest first.
func (l *listing) withEvents(ctx context.Context, items []json.RawMessage) ([]json.RawMessage, error) {
	client, err := l.operatorClient()
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(items))
	for i, raw := range items {
		var r runtime
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("list runtimes: %w", err)
		}
		ids[i] = r.InstanceID
	}
	byInstance := map[string][]operator.Event{}
	for chunk := range slices.Chunk(ids, askedAtOnce) {
		events, err := l.eventsOf(ctx, client, chunk)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			if l.events == eventsAll || l.events == e.Level {
				byInstance[e.InstanceID] = append(byInstance[e.InstanceID], e)
			}
		}
	}
	out := make([]json.RawMessage, len(items))
	for i, raw := range items {
		events := byInstance[ids[i]]
		slices.SortStableFunc(events, func(a, b operator.Event) int { return a.CreatedAt.Compare(b.CreatedAt) })
		if out[i], err = withMember(raw, "events", events); err != nil {
			return nil, fmt.Errorf("list runtimes: %w", err)
		}
	}
	return out, nil
}

// eventsOf returns the events of instances. An answer has the newest ones of all its instances, so if it is full, each half is requested on
// its own.
func (l *listing) eventsOf(ctx context.Context, client *operator.Client, instances []string) ([]operator.Event, error) {
	events, err := client.Events(ctx, instances)
	if err != nil || len(events) < operator.MaxEvents {
		return events, err
	}
	if len(instances) == 1 {
		_, err = fmt.Fprintf(l.Err, "keb: only the newest %d events of instance %s are shown\n", len(events), view.OneLine(instances[0]))
		return events, err
	}
	half := len(instances) / 2
	first, err := l.eventsOf(ctx, client, instances[:half])
	if err != nil {
		return nil, err
	}
	second, err := l.eventsOf(ctx, client, instances[half:])
	return append(first, second...), err
}

// withMember sets a member of a JSON object.
func withMember(object json.RawMessage, name string, value any) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	members[name] = raw
	return json.Marshal(members)
}
