package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

func newFind(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "find TEXT",
		Short: "Find runtimes and operations by a name or the beginning of an ID",
		Long: `Find runtimes by the beginning of the name of the runtime, of the name of the shoot, or of the ID of the instance, the runtime, the
subaccount or the global account, and operations by the beginning of their ID. The text has at least 3 characters.`,
		Example: "  keb find c-1234567\n  keb find my-runtime",
		Args:    exactly("TEXT"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.find(cmd.Context(), args[0]) },
	}
}

func (o *options) find(ctx context.Context, text string) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	found, raw, err := client.Find(ctx, text)
	if err != nil {
		return err
	}
	if !o.text() {
		return printJSON(o.Out, raw)
	}
	out := report{options: o}
	out.warn(found.Problems)
	if len(found.Instances)+len(found.Operations) == 0 {
		out.line("nothing matches")
	}
	now := time.Now()
	if len(found.Instances) > 0 {
		out.table("runtimes", []string{"INSTANCE", "NAME", "SHOOT", "PLAN", "REGION", "STATE", "MATCHES", "AGE"}, foundRows(found.Instances, now))
		if found.MoreInstances {
			out.line("the first %d runtimes; write more of the text", len(found.Instances))
		}
	}
	if n := len(found.Operations); n > 0 {
		if len(found.Instances) > 0 {
			out.line("")
		}
		out.table("operations", operationColumns, operationRows(found.Operations, now))
		if n < found.OperationCount {
			out.line("%d of %d operations; keb operations -q %s lists them", n, found.OperationCount, text)
		}
	}
	return out.err
}

func foundRows(list []event.FoundInstance, now time.Time) [][]string {
	rows := make([][]string, len(list))
	for i := range list {
		f := &list[i]
		state := f.State
		if f.ExpiredAt != nil {
			state += ", expired"
		}
		rows[i] = []string{f.InstanceID, f.RuntimeName, f.ShootName, f.Plan, f.Region, state, f.Matched, view.Duration(now.Sub(f.CreatedAt))}
	}
	return rows
}

// report prints lines and tables until one of them cannot be written.
type report struct {
	*options
	err error
}

func (r *report) line(format string, args ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.Out, format+"\n", args...)
	}
}

func (r *report) table(what string, head []string, rows [][]string) {
	if r.err == nil {
		r.err = r.printTable(page{what: what, count: len(rows)}, head, rows)
	}
}

// warn prints what an answer lacks.
func (r *report) warn(problems []string) {
	for _, p := range problems {
		if r.err == nil {
			_, r.err = fmt.Fprintf(r.Err, "keb: only a part is shown: %s\n", view.OneLine(p))
		}
	}
}

func newInstance(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "instance ID",
		Short: "Show everything about one instance",
		Long: `Show the runtime of an instance and its state, the parameters as sent and as effective, the maintenance window, bindings without their access,
operations, orchestrations and events. Parameters that look like secrets are masked. keb find finds the ID.`,
		Args:              exactly("ID"),
		ValidArgsFunction: o.completeInstance,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.instance(cmd.Context(), args[0]) },
	}
}

func (o *options) instance(ctx context.Context, id string) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	i, raw, err := client.Instance(ctx, id)
	if errors.Is(err, operator.ErrNotFound) {
		return fmt.Errorf("there is no instance %q; keb find finds one by its name, shoot or the beginning of an ID", id)
	}
	if err != nil {
		return err
	}
	if !o.text() {
		return printJSON(o.Out, raw)
	}
	window := &operator.MaintenanceWindow{}
	if i.Detail != nil {
		if window, err = client.MaintenanceWindow(ctx, id); err != nil {
			window = &operator.MaintenanceWindow{Problem: err.Error()}
		}
	}
	return o.printInstance(i, window, time.Now())
}

func (o *options) printInstance(i *operator.Instance, window *operator.MaintenanceWindow, now time.Time) error {
	out := report{options: o}
	out.warn(i.Problems)
	if i.Detail != nil {
		out.line("%s\n", strings.Join(instanceLines(i.Detail, window, now), "\n"))
	}
	out.line("Operations")
	out.table("operations", operationColumns, operationRows(i.Operations, now))
	if len(i.Operations) < i.OperationCount {
		out.line("%d of %d operations; keb operations --instance %s lists them", len(i.Operations), i.OperationCount, i.InstanceID)
	}
	if i.Detail != nil && len(i.Detail.Bindings) > 0 {
		out.line("\nBindings")
		out.table("bindings", []string{"BINDING", "STATE", "CREATED", "EXPIRES"}, bindingRows(i.Detail.Bindings, now))
	}
	if len(i.Orchestrations) > 0 {
		rows := make([][]string, len(i.Orchestrations))
		for n := range i.Orchestrations {
			m := &i.Orchestrations[n]
			rows[n] = []string{m.OrchestrationID, dryRun(memberStatus(m), m.DryRun), m.OperationID, m.Description}
		}
		out.line("\nOrchestrations")
		out.table("orchestrations", []string{"ORCHESTRATION", "STATE", "OPERATION", "DESCRIPTION"}, rows)
	}
	if len(i.Events) > 0 {
		rows := make([][]string, len(i.Events))
		for n := range i.Events {
			e := &i.Events[n]
			rows[n] = []string{view.Time(e.CreatedAt), e.Level, e.OperationID, view.OneLine(e.Message)}
		}
		out.line("\nEvents")
		out.table("events", []string{"TIME", "LEVEL", "OPERATION", "EVENT"}, rows)
	}
	return out.err
}

// instanceLines returns the lines about the runtime of an instance.
func instanceLines(d *event.InstanceDetail, window *operator.MaintenanceWindow, now time.Time) []string {
	state := d.State
	if d.ExpiredAt != nil {
		state += ", expired since " + view.Time(*d.ExpiredAt)
	}
	if d.DeletedAt != nil {
		state += ", removed at " + view.Time(*d.DeletedAt)
	}
	maintenance := cmp.Or(window.Problem, "none")
	if window.Problem != "" {
		maintenance = "not known: " + window.Problem
	}
	if window.Begin != "" {
		maintenance = window.Begin + " to " + window.End
	}
	lines := []string{view.OneLine(cmp.Or(d.Runtime.Name, d.InstanceID)) + ": " + state}
	for _, f := range [][2]string{
		{"Instance", d.InstanceID},
		{"Runtime ID", d.RuntimeID},
		{"Shoot", d.Runtime.ShootName},
		{"Plan", d.Plan.Name},
		{"Region", strings.TrimSpace(d.Runtime.Region + " " + d.Runtime.Provider)},
		{"Kyma version", d.KymaVersion},
		{"Global account", d.GlobalAccountID},
		{"Subaccount", d.SubaccountID},
		{"Platform region", d.PlatformRegion},
		{"Created", view.Time(d.CreatedAt) + ", " + view.Duration(now.Sub(d.CreatedAt)) + " ago"},
		{"Maintenance window", maintenance},
		{"Parameters as sent", string(d.Parameters)},
		{"Effective parameters", string(d.EffectiveParameters)},
	} {
		if f[1] != "" {
			lines = append(lines, fmt.Sprintf("  %-21s %s", f[0], view.OneLine(f[1])))
		}
	}
	return lines
}

func bindingRows(list []event.BindingSummary, now time.Time) [][]string {
	rows := make([][]string, len(list))
	for i := range list {
		b := &list[i]
		state := "usable"
		switch {
		case b.RevokedAt != nil:
			state = "revoked"
		case !now.Before(b.ExpiresAt):
			state = "expired"
		case b.CreatedAccessAt == nil:
			state = "being created"
		}
		rows[i] = []string{b.BindingID, state, view.Time(b.CreatedAt), view.Time(b.ExpiresAt)}
	}
	return rows
}
