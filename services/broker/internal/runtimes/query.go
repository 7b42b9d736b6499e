package runtimes

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

const (
	// maxPageSize is also the default (docs/contracts/broker.md#list-of-runtimes).
	maxPageSize = 100
	maxPage     = 1_000_000
)

// query holds the parameters of GET /runtimes.
type query struct {
	filter                    store.RuntimeFilter
	kymaConfig, clusterConfig bool
}

// states are the values of the parameter state, besides all.
var states = []store.RuntimeState{
	store.RuntimeSucceeded, store.RuntimeFailed, store.RuntimeError, store.RuntimeProvisioning, store.RuntimeDeprovisioning,
	store.RuntimeUpgrading, store.RuntimeUpdating, store.RuntimeSuspended, store.RuntimeDeprovisioned, store.RuntimeIncomplete,
}

// allStates is the value of state that includes hidden states.
const allStates = "all"

// hidden are the states that are listed only on request: those after a successful deprovisioning.
var hidden = []store.RuntimeState{store.RuntimeSuspended, store.RuntimeDeprovisioned, store.RuntimeIncomplete}

// parse parses the parameters. A list is a repeated parameter; each value is taken literally. The error contains the name of the
// parameter.
func parse(raw string) (query, error) {
	q := query{filter: store.RuntimeFilter{Limit: maxPageSize}}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, errors.New("the query cannot be read: " + err.Error())
	}
	number := 1
	f := &q.filter
	gardener := false
	known := map[string]func(name string, given []string) error{
		"after":           position(&f.After),
		"page":            whole(&number, maxPage),
		"page_size":       whole(&f.Limit, maxPageSize),
		"account":         list(&f.Accounts),
		"subaccount":      list(&f.Subaccounts),
		"instance_id":     list(&f.InstanceIDs),
		"runtime_id":      list(&f.RuntimeIDs),
		"region":          list(&f.Regions),
		"shoot":           list(&f.Shoots),
		"plan":            list(&f.Plans),
		"state":           stateList(f),
		"expired":         boolean(&f.Expired),
		"op_detail":       either(&f.LastOperation, "last", "all or last"),
		"kyma_config":     boolean(&q.kymaConfig),
		"cluster_config":  boolean(&q.clusterConfig),
		"gardener_config": boolean(&gardener),
	}
	f.Without = hidden
	for _, name := range slices.Sorted(maps.Keys(values)) {
		read := known[name]
		if read == nil {
			return q, fmt.Errorf("%s: there is no such parameter; allowed are %s", quoted(name), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if err := read(name, values[name]); err != nil {
			return q, err
		}
	}
	q.clusterConfig = q.clusterConfig || gardener
	if number > 1 && f.After != (store.RuntimePosition{}) {
		return q, errors.New("page: is not allowed with after")
	}
	f.Offset = (number - 1) * f.Limit
	return q, nil
}

// parseDryRun parses the only parameter of a deprovision-retrigger.
func parseDryRun(raw string) (bool, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return false, errors.New("the query cannot be read: " + err.Error())
	}
	dryRun := false
	for name, given := range values {
		if name != "dry_run" {
			return false, fmt.Errorf("%s: there is no such parameter; allowed is dry_run", quoted(name))
		}
		if err := boolean(&dryRun)(name, given); err != nil {
			return false, err
		}
	}
	return dryRun, nil
}

// quoted returns a name or a value of the client, shortened for an error message.
func quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strconv.Quote(s)
}

func single(name string, given []string) (string, error) {
	if len(given) != 1 {
		return "", fmt.Errorf("%s: give it once", name)
	}
	return given[0], nil
}

func whole(target *int, most int) func(string, []string) error {
	return func(name string, given []string) error {
		v, err := single(name, given)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("%s %s: must be a whole number from 1 to %d", name, quoted(v), most)
		}
		*target = n
		return nil
	}
}

// either sets target to whether the value is yes; allowed has both values as in an error.
func either(target *bool, yes, allowed string) func(string, []string) error {
	return func(name string, given []string) error {
		v, err := single(name, given)
		if err != nil {
			return err
		}
		if !slices.Contains(strings.Split(allowed, " or "), v) {
			return fmt.Errorf("%s %s: must be %s", name, quoted(v), allowed)
		}
		*target = v == yes
		return nil
	}
}

func boolean(target *bool) func(string, []string) error {
	return either(target, "true", "true or false")
}

// position reads the createdAt and the instanceID of a runtime, with a comma between them.
func position(target *store.RuntimePosition) func(string, []string) error {
	return func(name string, given []string) error {
		v, err := single(name, given)
		if err != nil {
			return err
		}
		created, id, _ := strings.Cut(v, ",")
		at, err := time.Parse(time.RFC3339, created)
		if err != nil || at.Year() < 1 {
			return fmt.Errorf("%s %s: must be the createdAt and the instanceID of a runtime, with a comma between them", name, quoted(v))
		}
		*target = store.RuntimePosition{CreatedAt: at, InstanceID: id}
		return checkText(name, id)
	}
}

func list(target *[]string) func(string, []string) error {
	return func(name string, given []string) error {
		for _, v := range given {
			if err := checkText(name, v); err != nil {
				return err
			}
		}
		*target = slices.Compact(slices.Sorted(slices.Values(given)))
		return nil
	}
}

func stateList(f *store.RuntimeFilter) func(string, []string) error {
	return func(name string, given []string) error {
		f.Without = nil
		var wanted []store.RuntimeState
		all := false
		for _, v := range given {
			switch s := store.RuntimeState(v); {
			case v == allStates:
				all = true
			case !slices.Contains(states, s):
				return fmt.Errorf("%s %s: allowed are %s, %s", name, quoted(v), joined(states), allStates)
			case !slices.Contains(wanted, s):
				wanted = append(wanted, s)
			}
		}
		if !all {
			f.States = wanted
		}
		return nil
	}
}

func joined(states []store.RuntimeState) string {
	out := make([]string, len(states))
	for i, s := range states {
		out[i] = string(s)
	}
	return strings.Join(out, ", ")
}

// checkText rejects values that no id or name can have, and that the database cannot search for.
func checkText(name, v string) error {
	switch {
	case v == "":
		return fmt.Errorf("%s: must not be empty", name)
	case len(v) > osb.MaxIDLength:
		return fmt.Errorf("%s %s: must be at most %d bytes", name, quoted(v), osb.MaxIDLength)
	case !utf8.ValidString(v), strings.ContainsFunc(v, func(r rune) bool { return r < ' ' }):
		return fmt.Errorf("%s %s: must be UTF-8 without control characters", name, quoted(v))
	}
	return nil
}
