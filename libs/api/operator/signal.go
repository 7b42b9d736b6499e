package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// EventAnswer confirms that an event for an operation is stored.
type EventAnswer struct {
	Key string `json:"key"`
	// Source is the sender, and ID the ID of the event: that of the request, or a new one.
	Source string `json:"source"`
	ID     string `json:"id"`
	// Repeated reports whether the event with this key, source and ID was stored before.
	Repeated bool `json:"repeated"`
}

// SendEvent sends an event to the operation that waits for its key, or will wait for it within seven days. data is JSON, or nil. The ID makes
// a repetition harmless; without one each call sends another event.
func (c *Client) SendEvent(ctx context.Context, key, id string, data json.RawMessage) (*EventAnswer, json.RawMessage, error) {
	client := *c
	if id != "" {
		client.header = http.Header{"Ce-Id": {id}}
	}
	var answer EventAnswer
	raw, err := client.send(ctx, http.MethodPost, "/events/"+url.PathEscape(key), "application/json", bytes.Clone(data), &answer)
	if err != nil {
		return nil, nil, fmt.Errorf("send event %s: %w", key, err)
	}
	return &answer, raw, nil
}
