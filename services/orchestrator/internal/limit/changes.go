package limit

import (
	"fmt"
	"maps"
	"slices"
)

// Changes describes the differences between two documents, one per line, for example "ias: added: at most 10 commands in flight of worker
// ias". It is empty if they mean the same.
func Changes(before, after *Set) []string {
	lines := []string{}
	known := map[string]string{}
	for i := range before.Limits {
		known[before.Limits[i].Name] = before.Limits[i].String()
	}
	for i := range after.Limits {
		l := &after.Limits[i]
		switch was, ok := known[l.Name]; {
		case !ok:
			lines = append(lines, fmt.Sprintf("%s: added: %s", l.Name, l))
		case was != l.String():
			lines = append(lines, fmt.Sprintf("%s: changed: %s; was %s", l.Name, l, was))
		}
		delete(known, l.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		lines = append(lines, fmt.Sprintf("%s: removed: %s", name, known[name]))
	}
	accounts := slices.Sorted(maps.Keys(before.Weights))
	for account := range after.Weights {
		if _, ok := before.Weights[account]; !ok {
			accounts = append(accounts, account)
		}
	}
	slices.Sort(accounts)
	for _, account := range accounts {
		if was, is := before.Weight(account), after.Weight(account); was != is {
			lines = append(lines, fmt.Sprintf("weight of %s: %g; was %g", account, is, was))
		}
	}
	if len(lines) == 0 && !slices.EqualFunc(before.Limits, after.Limits, func(a, b Limit) bool { return a.Name == b.Name }) {
		lines = append(lines, "the order of the limits")
	}
	return lines
}
