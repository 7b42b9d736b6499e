package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/kyma-project/keb/libs/event"
)

// New returns an event of the contract with JSON data. The subject attribute is the operation id; empty omits it. New validates data
// that has a Validate method.
func New(t event.Type, id, source, subject string, at time.Time, data any) (cloudevents.Event, error) {
	if id == "" {
		return cloudevents.Event{}, fmt.Errorf("new event of type %s: id is empty", t)
	}
	ref, ok := sources.parse(source)
	if !ok {
		return cloudevents.Event{}, fmt.Errorf("new event %q: source %q: want a URI reference", id, clip(source))
	}
	if v, ok := data.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return cloudevents.Event{}, fmt.Errorf("new event %q of type %s: %w", id, t, err)
		}
	}
	body, err := encodeData(data)
	if err != nil {
		return cloudevents.Event{}, fmt.Errorf("new event %q of type %s: %w", id, t, err)
	}
	ct := mediaJSON
	c := &cloudevents.EventContextV1{
		ID: id, Source: ref, Type: string(t), DataContentType: &ct, Time: &types.Timestamp{Time: at},
	}
	if subject != "" {
		c.Subject = &subject
	}
	return cloudevents.Event{Context: c, DataEncoded: body}, nil
}

// encodeData encodes data as JSON. Frequently sent types have a faster encoder.
func encodeData(data any) ([]byte, error) {
	if a, ok := data.(interface {
		AppendJSON(b []byte) ([]byte, error)
	}); ok {
		return a.AppendJSON(nil)
	}
	return json.Marshal(data)
}

// ErrBadData is wrapped by errors about data that is invalid for its type.
var ErrBadData = errors.New("bad event data")

// Data decodes the data of an event, with T's DecodeJSON method if it has one that accepts the data. It ignores unknown members. A value
// of a wrong JSON type, missing data, and an error of T's Validate method are errors that wrap ErrBadData.
func Data[T any](e cloudevents.Event) (T, error) {
	var v T
	if e.Context == nil {
		return v, fmt.Errorf("%w: the event is empty", ErrBadData)
	}
	if ct := e.DataContentType(); ct != "" && ct != mediaJSON && !isJSON(ct) {
		return v, fmt.Errorf("%w: event %q has content type %q: want %s", ErrBadData, e.ID(), clip(ct), mediaJSON)
	}
	if len(e.DataEncoded) == 0 {
		return v, fmt.Errorf("%w: event %q has no data", ErrBadData, e.ID())
	}
	if d, ok := any(&v).(interface{ DecodeJSON(data []byte) bool }); !ok || !d.DecodeJSON(e.DataEncoded) {
		if err := json.Unmarshal(e.DataEncoded, &v); err != nil {
			var zero T
			return zero, fmt.Errorf("%w: event %q of type %s: %w", ErrBadData, e.ID(), e.Type(), err)
		}
	}
	if c, ok := any(v).(interface{ Validate() error }); ok {
		if err := c.Validate(); err != nil {
			var zero T
			return zero, fmt.Errorf("%w: event %q of type %s: %w", ErrBadData, e.ID(), e.Type(), err)
		}
	}
	return v, nil
}
