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
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// minQuery and maxQuery bound the text of a search.
	minQuery, maxQuery = 3, 100
	// maxName bounds names that are looked for, and maxValues the alternatives of one parameter.
	maxName, maxValues = 253, 50
	maxCursor          = 500
)

// question is what a list of operations was asked for. Names of steps and workers become places once the definitions are read.
type question struct {
	store.Filter
	step, worker string
	// total and capped are those of the first page, which the cursor has brought along.
	total  int
	capped bool
}

// parseQuestion reads which operations are wanted. Every error names the parameter, and what is allowed.
func parseQuestion(q url.Values) (*question, error) {
	w := &question{}
	var err error
	set := func(do func() error) {
		if err == nil {
			err = do()
		}
	}
	set(func() (err error) { w.States, err = among(q, "state", event.OperationStates()); return })
	set(func() (err error) { w.Types, err = among(q, "type", event.OperationTypes()); return })
	set(func() (err error) { w.Waiting, err = among(q, "waiting", store.Reasons()); return })
	set(func() (err error) { w.Plans, err = several(q, "plan"); return })
	set(func() (err error) { w.InstanceID, err = name(q, "instance"); return })
	set(func() (err error) { w.step, err = name(q, "step"); return })
	set(func() (err error) { w.worker, err = name(q, "worker"); return })
	set(func() (err error) { w.Orchestration, err = id(q, "orchestration"); return })
	set(func() (err error) { w.Since, err = instant(q, "since"); return })
	set(func() (err error) { w.Until, err = instant(q, "until"); return })
	set(func() error {
		w.Query = strings.TrimSpace(q.Get("q"))
		if n := len(w.Query); n != 0 && (n < minQuery || n > maxQuery) {
			return fmt.Errorf("q %.110q: must have from %d to %d characters", w.Query, minQuery, maxQuery)
		}
		return nil
	})
	set(func() (err error) { w.Limit, w.Offset, err = parsePage(q); return })
	set(func() error { return w.parseCursor(q) })
	if err != nil {
		return nil, err
	}
	return w, nil
}

// several reads the values of a parameter, which may be repeated and may have commas.
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
				return nil, fmt.Errorf("%s: has more than %d values", parameter, maxValues)
			}
		}
	}
	return found, nil
}

// among is several for a parameter of which the values are known.
func among[T ~string](q url.Values, parameter string, allowed []T) ([]T, error) {
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

func instant(q url.Values, parameter string) (time.Time, error) {
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

// The parts of a cursor, with dots between: a version, the time of creation in microseconds, the arrival, the operation, the
// total of the first page, and whether that was capped.
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
		return errors.New("cursor: cannot be given together with page")
	}
	wrong := fmt.Errorf("cursor %.50q: must be the nextCursor of the page before", text)
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
