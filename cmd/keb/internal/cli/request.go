package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// request is the file format of keb provision: the body of an OSB request, and optionally the id of the instance.
type request struct {
	InstanceID       string          `json:"instance_id"`
	ServiceID        string          `json:"service_id"`
	PlanID           string          `json:"plan_id"`
	OrganizationGUID string          `json:"organization_guid"`
	SpaceGUID        string          `json:"space_guid"`
	Context          json.RawMessage `json:"context"`
	Parameters       json.RawMessage `json:"parameters"`
}

// maxRequest is the maximum size of a request in bytes.
const maxRequest = 4 << 20

// readRequest reads a request file; "-" is standard input.
func readRequest(path string, stdin io.Reader) (*request, error) {
	var content []byte
	var err error
	if path == "-" {
		path = "standard input"
		content, err = io.ReadAll(io.LimitReader(stdin, maxRequest+1))
		if len(content) > maxRequest {
			err = fmt.Errorf("more than %d bytes", maxRequest)
		}
	} else {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		if pathError, ok := errors.AsType[*os.PathError](err); ok {
			err = pathError.Err
		}
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var r request
	dec := json.NewDecoder(bytes.NewReader(content))
	// A misspelt key must not be ignored silently.
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return nil, fmt.Errorf("%s:%d: %s", path, lineOf(content, dec, err), jsonProblem(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one JSON value", path)
	}
	for _, field := range []struct{ name, value string }{{"service_id", r.ServiceID}, {"plan_id", r.PlanID}} {
		if field.value == "" {
			return nil, fmt.Errorf("%s: key %q is missing", path, field.name)
		}
	}
	return &r, nil
}

// lineOf returns the line where decoding stopped.
func lineOf(content []byte, dec *json.Decoder, err error) int {
	offset := dec.InputOffset()
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = e.Offset
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = e.Offset
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		offset = int64(len(content))
	}
	if _, name, ok := strings.Cut(err.Error(), "unknown field "); ok {
		// The decoder reports an unknown field at the end of the object that contains it.
		offset = max(0, int64(bytes.Index(content, []byte(name))))
	}
	return 1 + bytes.Count(content[:min(int(offset), len(content))], []byte("\n"))
}

// jsonProblem describes an error of the decoder for users.
func jsonProblem(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "the file is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the JSON ends too early"
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if strings.HasPrefix(text, "unknown field ") {
		return text + "; allowed: instance_id, service_id, plan_id, organization_guid, space_guid, context, parameters"
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return "the file must hold a JSON object, not: " + e.Value
		}
		return fmt.Sprintf("%s is a %s, must be a %s", e.Field, e.Value, e.Type)
	}
	return text
}

// instance returns the id of the instance: the flag's, else the file's, else a new one.
func (r *request) instance(flag string) string {
	switch {
	case flag != "":
		return flag
	case r.InstanceID != "":
		return r.InstanceID
	}
	return uuid.NewString()
}

// provisioning returns the OSB request, without the fields that the file does not set.
func (r *request) provisioning() osbclient.Provisioning {
	p := osbclient.Provisioning{
		ServiceID: r.ServiceID, PlanID: r.PlanID, OrganizationGUID: r.OrganizationGUID, SpaceGUID: r.SpaceGUID,
	}
	if r.Context != nil {
		p.Context = r.Context
	}
	if r.Parameters != nil {
		p.Parameters = r.Parameters
	}
	return p
}
