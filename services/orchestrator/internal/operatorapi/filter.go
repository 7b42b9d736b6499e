package operatorapi

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/filter"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// minQuery and maxQuery limit the length of a search text.
	minQuery, maxQuery = 3, 100
	// maxName limits names in queries, and maxValues the values of one parameter.
	maxName, maxValues = 253, 50
	maxCursor          = 500
)

// question is a query for operations. Names of steps and workers are resolved to places when the definitions are read.
type question struct {
	store.Filter
	step, worker, system string
	// total and capped are from the first page; the cursor contains them.
	total  int
	capped bool
}

// parseQuestion parses a query for operations. Every error names the parameter and the allowed values.
func parseQuestion(q url.Values) (*question, error) {
	w := &question{}
	var err error
	set := func(do func() error) {
		if err == nil {
			err = do()
		}
	}
	set(func() (err error) { w.States, err = oneOf(q, "state", operator.FilterStates()); return })
	w.Incomplete = slices.Contains(w.States, operator.Incomplete)
	w.States = slices.DeleteFunc(w.States, func(s event.OperationState) bool { return s == operator.Incomplete })
	set(func() (err error) { w.Types, err = oneOf(q, "type", event.OperationTypes()); return })
	set(func() (err error) { w.Waiting, err = oneOf(q, "waiting", operator.WaitingReasons()); return })
	set(func() (err error) { w.Plans, err = several(q, "plan"); return })
	set(func() (err error) { w.InstanceID, err = name(q, "instance"); return })
	set(func() (err error) { w.step, err = name(q, "step"); return })
	set(func() (err error) { w.worker, err = name(q, "worker"); return })
	set(func() (err error) { w.system, err = name(q, "system"); return })
	set(func() (err error) { w.GlobalAccount, err = name(q, "global_account"); return })
	set(func() (err error) { w.Region, err = name(q, "region"); return })
	set(func() (err error) { w.Orchestration, err = id(q, "orchestration"); return })
	set(func() (err error) { w.Error, err = errorKey(q); return })
	set(func() (err error) { w.Hold, err = id(q, "hold"); return })
	set(func() (err error) { w.LimitName, err = name(q, "limit_name"); return })
	set(func() (err error) { w.FinishedSince, err = timestamp(q, "finished_since"); return })
	set(func() (err error) { w.FinishedUntil, err = timestamp(q, "finished_until"); return })
	set(func() (err error) { w.Since, err = timestamp(q, "since"); return })
	set(func() (err error) { w.Until, err = timestamp(q, "until"); return })
	set(func() error {
		w.Query = strings.TrimSpace(q.Get("q"))
		if n := len(w.Query); n != 0 && (n < minQuery || n > maxQuery) {
			return fmt.Errorf("q %.110q: must have from %d to %d characters", w.Query, minQuery, maxQuery)
		}
		return nil
	})
	set(func() (err error) {
		if w.Expression, err = filter.Parse(q.Get("filter"), operator.FilterFields()); err != nil {
			return fmt.Errorf("filter: %w", err)
		}
		return nil
	})
	set(func() (err error) { w.Limit, w.Offset, err = parsePage(q); return })
	set(func() (err error) { w.Sort, err = sortOf(q); return })
	set(func() error { return w.parseCursor(q) })
	if err != nil {
		return nil, err
	}
	return w, nil
}

// several parses a parameter that may be repeated and may contain commas.
func several(q url.Values, parameter string) ([]string, error) {
	var found []string
	for _, list := range q[parameter] {
		for value := range strings.SplitSeq(list, ",") {
			if value == "" || slices.Contains(found, value) {
				continue
			}
			if len(value) > maxName {
				return nil, fmt.Errorf("%s %.50q...: must have at most %d characters", parameter, value, maxName)
			}
			if found = append(found, value); len(found) > maxValues {
				return nil, fmt.Errorf("%s: more than %d values", parameter, maxValues)
			}
		}
	}
	return found, nil
}

// oneOf is several for a parameter with known values.
func oneOf[T ~string](q url.Values, parameter string, allowed []T) ([]T, error) {
	values, err := several(q, parameter)
	if err != nil {
		return nil, err
	}
	var found []T
	for _, v := range values {
		state, ok := operator.Spelled(v, allowed)
		if !ok {
			names := make([]string, len(allowed))
			for i, a := range allowed {
				names[i] = string(a)
			}
			return nil, fmt.Errorf("%s %.50q: allowed are %s", parameter, v, strings.Join(names, ", "))
		}
		found = append(found, state)
	}
	return found, nil
}

func name(q url.Values, parameter string) (string, error) {
	v := q.Get(parameter)
	if len(v) > maxName {
		return "", fmt.Errorf("%s %.50q...: must have at most %d characters", parameter, v, maxName)
	}
	return v, nil
}

// sorts are the values of the parameter sort.
var sorts = map[string]store.Sort{
	"": store.SortNewest, "newest": store.SortNewest, "oldest": store.SortOldest, "duration": store.SortDuration, "attempts": store.SortAttempts, "state": store.SortState,
}

func sortOf(q url.Values) (store.Sort, error) {
	v := q.Get("sort")
	s, ok := sorts[v]
	if !ok {
		return "", fmt.Errorf("sort %.50q: allowed are newest, oldest, duration, attempts, state", v)
	}
	return s, nil
}

func id(q url.Values, parameter string) (string, error) {
	v := q.Get(parameter)
	if v == "" {
		return "", nil
	}
	parsed, err := uuid.Parse(v)
	if err != nil {
		return "", fmt.Errorf("%s %.50q: must be a UUID", parameter, v)
	}
	return parsed.String(), nil
}

// errorKey parses the key of a group of errors.
func errorKey(q url.Values) (string, error) {
	v := q.Get("error")
	if v != "" && v != store.NoErrorGroup && (len(v) != store.ErrorKeyLength || strings.Trim(v, "0123456789abcdef") != "") {
		return "", fmt.Errorf("error %.50q: must be the key of a group of errors, which GET /errors returns, or %s", v, store.NoErrorGroup)
	}
	return v, nil
}

func timestamp(q url.Values, parameter string) (time.Time, error) {
	v := q.Get(parameter)
	if v == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil || t.Year() < 1970 {
		return time.Time{}, fmt.Errorf("%s %.50q: must be a time such as 2026-11-21T08:00:00Z", parameter, v)
	}
	return t.UTC(), nil
}

// The parts of a cursor, separated by dots: version, creation time in microseconds, arrival, operation, total of the first page, and
// whether the total was capped.
const cursorVersion = "1"

func (w *question) cursor(next *store.Position) string {
	if next == nil {
		return ""
	}
	capped := "0"
	if w.capped {
		capped = "1"
	}
	text := strings.Join([]string{
		cursorVersion, strconv.FormatInt(next.CreatedAt.UnixMicro(), 10), strconv.FormatInt(next.Arrived, 10), next.Operation,
		strconv.Itoa(w.total), capped,
	}, ".")
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func (w *question) parseCursor(q url.Values) error {
	text := q.Get("cursor")
	if text == "" {
		return nil
	}
	if q.Get("page") != "" {
		return errors.New("cursor: cannot be combined with page")
	}
	if w.Sort.Bounded() {
		return fmt.Errorf("cursor: cannot be combined with sort %s; use page", w.Sort)
	}
	wrong := fmt.Errorf("cursor %.50q: must be the nextCursor of the previous page", text)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(text) > maxCursor {
		return wrong
	}
	parts := strings.Split(string(raw), ".")
	if len(parts) != 6 || parts[0] != cursorVersion {
		return wrong
	}
	micro, err1 := strconv.ParseInt(parts[1], 10, 64)
	arrived, err2 := strconv.ParseInt(parts[2], 10, 64)
	operation, err3 := uuid.Parse(parts[3])
	total, err4 := strconv.Atoi(parts[4])
	created := time.UnixMicro(micro).UTC()
	if errors.Join(err1, err2, err3, err4) != nil || total < 0 || created.Year() < 1970 || created.Year() > 9999 {
		return wrong
	}
	w.After = &store.Position{CreatedAt: created, Arrived: arrived, Operation: operation.String()}
	w.total, w.capped = total, parts[5] == "1"
	return nil
}
