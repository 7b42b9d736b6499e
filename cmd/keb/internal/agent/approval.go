package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// approvalLasts is how long a preview can be approved.
	approvalLasts = 10 * time.Minute
	// maxApprovals limits the previews that wait. The oldest one is dropped.
	maxApprovals = 100
)

// approvals are previews that wait for an approval. An approval belongs to one tool with exactly these arguments, and works once.
type approvals struct {
	now func() time.Time

	mu      sync.Mutex
	waiting map[string]approval
}

type approval struct {
	digest [sha256.Size]byte
	until  time.Time
}

func newApprovals(now func() time.Time) *approvals {
	return &approvals{now: now, waiting: map[string]approval{}}
}

// digest identifies a call. The arguments contain no approval.
func digest(tool string, arguments any) ([sha256.Size]byte, error) {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encode the arguments: %w", err)
	}
	return sha256.Sum256(append([]byte(tool+"\x00"), raw...)), nil
}

// offer returns a new approval.
func (a *approvals) offer(call [sha256.Size]byte) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, oldest := a.now(), ""
	for token, w := range a.waiting {
		if !now.Before(w.until) {
			delete(a.waiting, token)
		} else if oldest == "" || w.until.Before(a.waiting[oldest].until) {
			oldest = token
		}
	}
	if len(a.waiting) >= maxApprovals {
		delete(a.waiting, oldest)
	}
	token := rand.Text()
	a.waiting[token] = approval{digest: call, until: now.Add(approvalLasts)}
	return token
}

var (
	errUnknownApproval = errors.New("the approval is unknown, used or older than 10 minutes; nothing was done. Call the tool without approval for a new preview")
	errOtherCall       = errors.New("the approval belongs to other arguments; nothing was done. Call the tool without approval for a preview of these arguments")
)

// take uses an approval up.
func (a *approvals) take(token string, call [sha256.Size]byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.waiting[token]
	delete(a.waiting, token)
	switch {
	case !ok || !a.now().Before(w.until):
		return errUnknownApproval
	case subtle.ConstantTimeCompare(w.digest[:], call[:]) != 1:
		return errOtherCall
	}
	return nil
}

// approvable are the arguments of a tool that changes something.
type approvable interface {
	// takeApproval returns the approval, and removes it from the arguments.
	takeApproval() string
}

// approved is a part of the arguments of each tool that changes something.
type approved struct {
	Approval string `json:"approval,omitempty" jsonschema:"Leave it out for a preview. To carry out a preview that a person has agreed to, repeat the same arguments with the approval of the preview."`
}

func (a *approved) takeApproval() string {
	token := a.Approval
	a.Approval = ""
	return token
}

// change describes a tool that changes something.
type change[T any] struct {
	tool
	// destructive says that the change cannot be undone.
	destructive bool
	// preview returns what the change would do. It checks the arguments.
	preview func(ctx context.Context, in *T) (any, error)
	do      func(ctx context.Context, in *T) (any, error)
}

// question is the ID of the question to the user.
const question = "approval"

// write adds a tool that changes something after an approval.
func write[T any, P interface {
	*T
	approvable
}](s *server, c change[T],
) {
	closed := false
	mcp.AddTool(s.Server, &mcp.Tool{
		Name: c.name, Title: c.title, InputSchema: schemaOf[T](),
		Description: c.description + " Without approval it changes nothing and returns a preview.",
		Annotations: &mcp.ToolAnnotations{Title: c.title, DestructiveHint: &c.destructive, OpenWorldHint: &closed},
	}, func(ctx context.Context, request *mcp.CallToolRequest, in T) (*mcp.CallToolResult, any, error) {
		token := P(&in).takeApproval()
		call, err := digest(c.name, in)
		if err != nil {
			return nil, nil, err
		}
		answer, asked := request.Params.InputResponses[question].(*mcp.ElicitResult)
		switch {
		case asked && answer.Action == "accept" && answer.Content["approve"] == true:
			token = request.Params.RequestState
		case asked:
			return nil, nil, errors.New("the user has not approved the preview; nothing was done")
		case token == "":
			return s.offer(ctx, c.name, request, call, func(ctx context.Context) (any, error) { return c.preview(ctx, &in) })
		}
		if err := s.approvals.take(token, call); err != nil {
			return nil, nil, err
		}
		out, err := c.do(ctx, &in)
		if err != nil {
			return nil, nil, explainChange(err)
		}
		return textResult(bounded(map[string]any{"done": true, "result": out})), nil, nil
	})
}

// offer returns a preview with an approval, or asks the user if the client can.
func (s *server) offer(ctx context.Context, name string, request *mcp.CallToolRequest, call [sha256.Size]byte, preview func(context.Context) (any, error)) (*mcp.CallToolResult, any, error) {
	what, err := preview(ctx)
	if err != nil {
		return nil, nil, explain(err)
	}
	token := s.approvals.offer(call)
	if canAsk(request) {
		return &mcp.CallToolResult{
			RequestState: token,
			InputRequests: mcp.InputRequestMap{question: &mcp.ElicitParams{
				Message: fmt.Sprintf("Carry out %s in KEB?\n\n%s", name, bounded(what)),
				RequestedSchema: &jsonschema.Schema{
					Type: "object", Required: []string{"approve"},
					Properties: map[string]*jsonschema.Schema{"approve": {Type: "boolean", Title: "Carry it out", Description: "Carry out exactly this change."}},
				},
			}},
		}, nil, nil
	}
	return textResult(bounded(map[string]any{
		"done": false, "preview": what, "approval": token,
		"next": "Nothing was done. Show the preview to a person. Only after that person has agreed, call the tool again with the same arguments and this approval, within 10 minutes.",
	})), nil, nil
}

// canAsk reports whether the client can ask the user with a form.
func canAsk(request *mcp.CallToolRequest) bool {
	if request.Session == nil {
		return false
	}
	p := request.Session.InitializeParams()
	if p == nil || p.Capabilities == nil || p.Capabilities.Elicitation == nil {
		return false
	}
	e := p.Capabilities.Elicitation
	return e.Form != nil || e.URL == nil // an empty object means forms
}
