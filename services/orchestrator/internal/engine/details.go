package engine

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/event"
)

var errDetailsTooLarge = errors.New("the saved data of the operation would be too large")

// mergeDetails merges a worker's patch into its key of the details, member by member. It removes null members, and a key without
// members. The patch must be a JSON object. saved is the record of the change; nil if nothing changes.
func mergeDetails(details json.RawMessage, worker string, patch json.RawMessage) (merged json.RawMessage, saved map[string]Saved, err error) {
	if len(patch) == 0 {
		return details, nil, nil
	}
	changes := map[string]json.RawMessage{}
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, nil, fmt.Errorf("details must be a JSON object: %w", err)
	}
	if len(changes) == 0 {
		return details, nil, nil
	}
	all := map[string]json.RawMessage{}
	if len(details) > 0 {
		if err := json.Unmarshal(details, &all); err != nil {
			return nil, nil, fmt.Errorf("read the saved details: %w", err)
		}
	}
	own := map[string]json.RawMessage{}
	if len(all[worker]) > 0 {
		if err := json.Unmarshal(all[worker], &own); err != nil {
			return nil, nil, fmt.Errorf("read the saved details of %s: %w", worker, err)
		}
	}
	// Unmarshalling the JSON value null leaves a nil map.
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	if own == nil {
		own = map[string]json.RawMessage{}
	}
	previous := members{}
	for name, value := range changes {
		before, ok := own[name]
		switch {
		case isAbsent(value) && !ok, ok && equalJSON(before, value):
			continue
		case isAbsent(value):
			delete(own, name)
		default:
			own[name] = value
		}
		if previous[name] = before; !ok {
			previous[name] = absent
		}
	}
	if len(previous) == 0 {
		return details, nil, nil
	}
	saved = map[string]Saved{worker: newSaved(previous, nil)}
	delete(all, worker)
	if len(own) > 0 {
		if all[worker], err = json.Marshal(own); err != nil {
			return nil, nil, fmt.Errorf("write the details of %s: %w", worker, err)
		}
	}
	if len(all) == 0 {
		return nil, saved, nil
	}
	if merged, err = json.Marshal(all); err != nil {
		return nil, nil, fmt.Errorf("write the details: %w", err)
	}
	if size := event.StoredSize(merged); size > event.MaxDetails {
		return nil, nil, fmt.Errorf("%w: %d bytes as the database writes them, %d of them from %s, at most %d are allowed",
			errDetailsTooLarge, size, event.StoredSize(all[worker]), worker, event.MaxDetails)
	}
	return merged, saved, nil
}
