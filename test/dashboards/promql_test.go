package dashboards

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// check reports the errors of an expression. It must parse, use metrics and labels of the catalog, take rates of counters and quantiles of
// buckets, and not add up values that are equal on all replicas.
func (c catalog) check(expr string) (problems []string) {
	parsed, err := parser.ParseExpr(substitute(expr, nil))
	if err != nil {
		return []string{err.Error()}
	}
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	available := map[string]bool{}
	parser.Inspect(parsed, func(n parser.Node, path []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			m, ok := c[n.Name]
			if !ok {
				problem("no service exports %s", n.Name)
				return nil
			}
			maps.Copy(available, m.labels)
			for _, matcher := range n.LabelMatchers {
				if matcher.Name != model.MetricNameLabel && !m.labels[matcher.Name] {
					problem("%s has no label %s", n.Name, matcher.Name)
				}
			}
			if m.kind != "gauge" && !within(path, "rate", "increase") {
				problem("%s only ever grows: take its rate or increase", n.Name)
			}
			if m.kind == "gauge" && within(path, "rate", "increase") {
				problem("%s is a gauge and has no rate", n.Name)
			}
			if strings.HasSuffix(n.Name, "_bucket") && !within(path, "histogram_quantile") && !strings.Contains(n.String(), "le=") {
				problem("%s is used without histogram_quantile and without one le", n.Name)
			}
			if m.shared && addedUp(path) {
				problem("%s is the same on every replica: take max by (...) before it is added up or counted", n.Name)
			}
		case *parser.Call:
			if n.Func.Name == "label_replace" {
				if label, ok := n.Args[1].(*parser.StringLiteral); ok {
					available[label.Val] = true
				}
			}
		}
		return nil
	})
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		var labels []string
		switch n := n.(type) {
		case *parser.AggregateExpr:
			labels = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				labels = slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include)
			}
		}
		for _, label := range labels {
			if !available[label] {
				problem("nothing in it has a label %s", label)
			}
		}
		return nil
	})
	return problems
}

// within reports whether one of the functions is called around a node.
func within(path []parser.Node, functions ...string) bool {
	return slices.ContainsFunc(path, func(n parser.Node) bool {
		call, ok := n.(*parser.Call)
		return ok && slices.Contains(functions, call.Func.Name)
	})
}

// addedUp reports whether the innermost aggregation around a node adds up.
func addedUp(path []parser.Node) bool {
	for _, n := range slices.Backward(path) {
		if a, ok := n.(*parser.AggregateExpr); ok {
			return a.Op == parser.SUM || a.Op == parser.COUNT || a.Op == parser.AVG
		}
	}
	return false
}

// substitute replaces the variables of Grafana; those that are not given match everything.
func substitute(expr string, values map[string]string) string {
	all := map[string]string{"$__rate_interval": "1m", "$__range": "1h"}
	for _, name := range []string{"type", "plan", "worker", "step", "stream", "job", "route", "namespace"} {
		all["$"+name] = ".*"
	}
	maps.Copy(all, values)
	// The longest first, because a name may begin like another.
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return len(b) - len(a) })
	for _, name := range names {
		expr = strings.ReplaceAll(expr, name, all[name])
	}
	return expr
}

func TestChecks_PlantedErrors_AreReported(t *testing.T) {
	t.Parallel()
	c := documented(t)
	for _, q := range []struct{ expr, want string }{
		{`sum by (type) (rate(keb_operations_created_total{plan=~"$plan"}[$__rate_interval]))`, ""},
		{`histogram_quantile(0.9, sum by (le) (rate(keb_stage_duration_seconds_bucket[5m])))`, ""},
		{`sum(max by (type) (keb_operations_unfinished))`, ""},
		{`sum by (job) (keb_worker_steps_running)`, ""},
		{`max(go_goroutines) + max(keb_worker_replicas)`, ""},
		{`sum(keb_operations_made_total)`, "no service exports keb_operations_made_total"},
		{`sum(rate(keb_operations_created_total{reason="x"}[5m]))`, "keb_operations_created_total has no label reason"},
		{`sum by (worker) (rate(keb_operations_created_total[5m]))`, "nothing in it has a label worker"},
		{`max(keb_worker_replicas) by (worker) and on (step) max(keb_worker_replicas) by (worker)`, "nothing in it has a label step"},
		{`keb_facts_lost_total > 0`, "keb_facts_lost_total only ever grows: take its rate or increase"},
		{`rate(keb_instances[5m])`, "keb_instances is a gauge and has no rate"},
		{`sum(rate(keb_stage_duration_seconds_bucket[5m]))`, "keb_stage_duration_seconds_bucket is used without histogram_quantile and without one le"},
		{`sum(keb_operations_unfinished)`, "keb_operations_unfinished is the same on every replica: take max by (...) before it is added up or counted"},
		{`sum(`, "1:5: parse error: unclosed left parenthesis"},
	} {
		if got := strings.Join(c.check(q.expr), "; "); got != q.want {
			t.Errorf("%s: %q, want %q", q.expr, got, q.want)
		}
	}
}
