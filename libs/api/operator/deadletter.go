package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// DeadLetter is a message on the bus that its consumer could not handle, and that was set aside.
type DeadLetter struct {
	// ID is the number of the dead letter. It grows with time.
	ID   uint64    `json:"id"`
	Time time.Time `json:"time"`
	// Stream is the stream of the message, for example KEB_COMMANDS.
	Stream string `json:"stream"`
	// Subject is the subject of the message.
	Subject string `json:"subject"`
	// Consumer could not handle the message, for the reason in Reason.
	Consumer string `json:"consumer"`
	Reason   string `json:"reason"`
	// Type and EventID are the attributes of the CloudEvent. They are absent if the message is not a CloudEvent.
	Type    string `json:"type,omitempty"`
	EventID string `json:"eventId,omitempty"`
	// Operation is the ID of the operation that the message belongs to.
	Operation string `json:"operation,omitempty"`
	// Size is the size of the data in bytes. Truncated reports whether only a part of it was kept.
	Size      int  `json:"size"`
	Truncated bool `json:"truncated,omitempty"`
	// Redrive says what a redrive does, or why it is not possible.
	Redrive    string `json:"redrive"`
	Redrivable bool   `json:"redrivable"`
}

// DeadLetterDetail is a dead letter with its payload.
type DeadLetterDetail struct {
	DeadLetter
	// Headers are the headers of the message.
	Headers map[string]string `json:"headers"`
	// Payload is the data of the message without secrets, indented if it is JSON. PayloadTruncated reports whether it is only the beginning.
	Payload          string `json:"payload"`
	PayloadTruncated bool   `json:"payloadTruncated,omitempty"`
}

// DeadLetterList is a page of dead letters, the newest first.
type DeadLetterList struct {
	List[DeadLetter]
	// NextBefore is the parameter before of the next page; absent at the end.
	NextBefore uint64 `json:"nextBefore,omitempty"`
}

// DeadLetters returns at most limit dead letters with IDs less than before, the newest first, and the raw answer. A before of 0 means the newest
// ones.
func (c *Client) DeadLetters(ctx context.Context, before uint64, limit int) (*DeadLetterList, json.RawMessage, error) {
	q := url.Values{"page_size": {strconv.Itoa(limit)}}
	if before > 0 {
		q.Set("before", strconv.FormatUint(before, 10))
	}
	return read[DeadLetterList](ctx, c, "/dead-letters", q, "list dead letters")
}

// DeadLetter returns a dead letter with its payload, and the raw answer. The error is ErrNotFound if there is no such dead letter.
func (c *Client) DeadLetter(ctx context.Context, id string) (*DeadLetterDetail, json.RawMessage, error) {
	return read[DeadLetterDetail](ctx, c, "/dead-letters/"+url.PathEscape(id), nil, "dead letter %s", id)
}

// RedriveDeadLetter publishes the message of a dead letter again, and drops the dead letter. The error is ErrNotFound if there is no such dead
// letter.
func (c *Client) RedriveDeadLetter(ctx context.Context, id string) error {
	return c.order(ctx, http.MethodPost, "/dead-letters/"+url.PathEscape(id)+"/redrive", "redrive dead letter %s", id)
}

// DropDeadLetter deletes a dead letter. The error is ErrNotFound if there is no such dead letter.
func (c *Client) DropDeadLetter(ctx context.Context, id string) error {
	return c.order(ctx, http.MethodDelete, "/dead-letters/"+url.PathEscape(id), "drop dead letter %s", id)
}
