package operatorapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// detailRequest asks for the changes of all details of an operation.
type detailRequest struct {
	// after is the cursor of the last history line that the client has.
	after int64
}

// parseDetail parses detail and after. It returns nil without detail.
func parseDetail(q url.Values) (*detailRequest, error) {
	switch q.Get("detail") {
	case "", "false":
		return nil, nil
	case "true":
	default:
		return nil, fmt.Errorf("detail %.50q: must be true or false", q.Get("detail"))
	}
	if q.Get("operation") == "" {
		return nil, errors.New("detail: is allowed only with operation")
	}
	after, err := parseAfter(q)
	return &detailRequest{after: after}, err
}

// parseAfter parses the cursor of a history line; 0 is the start of the history.
func parseAfter(q url.Values) (int64, error) {
	text := q.Get("after")
	if text == "" {
		return 0, nil
	}
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return 0, fmt.Errorf("after %.50q: must be the cursor of a line, or 0", text)
	}
	return after, nil
}

// sentDetail is what a client has of an operation, apart from its history. Before the first event, it is empty.
type sentDetail struct {
	members map[string]json.RawMessage
	stages  []operator.Stage
}

// unsent are the members of an operation that have events of their own.
var unsent = []string{"stages", "history"}

// change returns what has changed since the last call; nil if nothing has. The first call returns nil.
func (d *sentDetail) change(o *operator.OperationDetail) (*operator.OperationChange, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	for _, name := range unsent {
		delete(members, name)
	}
	before := *d
	d.members, d.stages = members, o.Stages
	if before.members == nil {
		return nil, nil
	}
	c := &operator.OperationChange{Set: map[string]json.RawMessage{}}
	for name, value := range members {
		if !bytes.Equal(value, before.members[name]) {
			c.Set[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before.members)) {
		if _, ok := members[name]; !ok {
			c.Unset = append(c.Unset, name)
		}
	}
	for i := range o.Stages {
		was, is := &before.stages[i], &o.Stages[i]
		if was.State != is.State || was.Attempt != is.Attempt {
			c.Stages = append(c.Stages, operator.StageChange{Stage: i, State: is.State, Attempt: is.Attempt})
		}
		for j := range is.Steps {
			if !reflect.DeepEqual(was.Steps[j], is.Steps[j]) {
				c.Steps = append(c.Steps, operator.StepChange{Stage: i, Step: j, To: is.Steps[j]})
			}
		}
	}
	if len(c.Set) == 0 && len(c.Unset) == 0 && len(c.Stages) == 0 && len(c.Steps) == 0 {
		return nil, nil
	}
	return c, nil
}

// sendDetail sends the operation, or what has changed in it, and its new history lines.
func (l *listener) sendDetail(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, historyLimit)
	defer cancel()
	deps := &l.api.deps
	rows, err := deps.Operations.Read(ctx, []string{l.only})
	if err != nil || len(rows) == 0 {
		return err
	}
	row := rows[0]
	p, err := deps.Definitions.Pinned(ctx, row.Definition)
	if err != nil {
		return err
	}
	history, err := deps.Operations.History(ctx, l.only)
	if err != nil {
		return err
	}
	extras, err := l.api.extras(ctx, []*store.Row{row})
	if err != nil {
		return err
	}
	o := l.api.details(row, p, extras, history)
	o.History = []operator.HistoryLine{}
	isFirst := l.detail.members == nil
	change, err := l.detail.change(&o)
	if err != nil {
		return err
	}
	switch {
	case isFirst:
		data, err := json.Marshal(&o)
		if err != nil {
			return err
		}
		if err := l.event("detail", data); err != nil {
			return err
		}
	case change != nil:
		data, err := json.Marshal(change)
		if err != nil {
			return err
		}
		if err := l.event("change", data); err != nil {
			return err
		}
	}
	return l.sendLines(history, p)
}
