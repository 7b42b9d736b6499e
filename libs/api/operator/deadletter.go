package operator

import "time"

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
