package avs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kyma-project/keb/libs/extclient"
)

// evaluation is the body that creates an evaluation (docs/contracts/avs.md).
type evaluation struct {
	DefinitionType   string `json:"definition_type"`
	Name             string `json:"name"`
	Description      string `json:"description"`
	Service          string `json:"service"`
	URL              string `json:"url"`
	CheckType        string `json:"check_type"`
	Interval         int    `json:"interval"`
	TesterAccessID   int64  `json:"tester_access_id"`
	Timeout          int    `json:"timeout"`
	ReadOnly         bool   `json:"read_only"`
	ContentCheck     string `json:"content_check"`
	ContentCheckType string `json:"content_check_type"`
	Threshold        string `json:"threshold"`
	GroupID          int64  `json:"group_id"`
	Visibility       string `json:"visibility"`
	ParentID         int64  `json:"parent_id"`
	// Tags is null if none are configured.
	Tags []Tag `json:"tags"`
}

// Tag describes an evaluation; the class defines its meaning.
type Tag struct {
	Content   string `json:"content"`
	ClassID   int    `json:"tag_class_id"`
	ClassName string `json:"tag_class_name"`
}

// created is the part of an answer that the steps need.
type created struct {
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
}

type client struct{ http *extclient.Client }

// The successful statuses of every call, and of calls for which a missing evaluation is no error.
var (
	accepted       = []int{http.StatusOK, http.StatusCreated}
	acceptedOrGone = []int{http.StatusOK, http.StatusCreated, http.StatusNotFound}
)

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	tokens := extclient.PasswordGrant(extclient.TokenConfig{
		URL: cfg.TokenURL, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret,
		Username: cfg.Username, Password: cfg.Password,
	}, deps)
	c, err := extclient.New(extclient.Config{System: "avs", BaseURL: cfg.URL, Timeout: cfg.Timeout}, tokens, deps)
	return &client{http: c}, err
}

// find returns the id of the evaluation with that exact name, or 0 if there is none. The real service has no known look-up of that
// kind (docs/contracts/avs.md), so it is disabled unless Config.LookUp is set.
func (c *client) find(ctx context.Context, name string) (int64, error) {
	var got []created
	err := c.http.Do(ctx, extclient.Request{Method: http.MethodGet, Query: url.Values{"name": {name}}}, &got)
	if err != nil {
		return 0, err
	}
	for _, e := range got {
		if e.Name == name && e.Status != statusDeleted {
			return e.ID, nil
		}
	}
	return 0, nil
}

func (c *client) create(ctx context.Context, e evaluation) (int64, error) {
	var got created
	err := c.http.Do(ctx, extclient.Request{
		Method: http.MethodPost, Body: e, Accept: accepted,
	}, &got)
	if err == nil && got.ID == 0 {
		err = &extclient.AnswerError{System: "avs", Method: http.MethodPost, Err: errors.New("id is missing")}
	}
	return got.ID, err
}

func (c *client) get(ctx context.Context, id int64) (created, error) {
	var got created
	err := c.http.Do(ctx, extclient.Request{Method: http.MethodGet, Route: "/{id}", Params: params(id), Accept: accepted}, &got)
	if err == nil && got.ID == 0 {
		err = &extclient.AnswerError{System: "avs", Method: http.MethodGet, Route: "/{id}", Err: errors.New("id is missing")}
	}
	return got, err
}

func (c *client) addTag(ctx context.Context, id int64, t Tag) error {
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodPost, Route: "/{id}/tag", Params: params(id), Body: t, Accept: accepted,
	}, nil)
}

// remove deletes an evaluation, and reports whether it existed. A missing evaluation is no error.
func (c *client) remove(ctx context.Context, id int64) (existed bool, err error) {
	err = c.http.Do(ctx, extclient.Request{
		Method: http.MethodDelete, Route: "/{id}", Params: params(id),
		Accept:   acceptedOrGone,
		Answered: func(status int, _ http.Header) { existed = status != http.StatusNotFound },
	}, nil)
	return existed, err
}

// detach removes an evaluation from its parent. A missing evaluation is no error: the service answers with 404, or with 400 and
// sometimes a message.
func (c *client) detach(ctx context.Context, parent, id int64) error {
	err := c.http.Do(ctx, extclient.Request{
		Method: http.MethodDelete, Route: "/{parent}/child/{id}", Params: params(parent, id),
		Accept: acceptedOrGone,
	}, nil)
	if refused, ok := errors.AsType[*extclient.StatusError](err); ok && refused.Status == http.StatusBadRequest && notAChild(refused.Body()) {
		return nil
	}
	return err
}

func notAChild(body []byte) bool {
	if len(bytes.TrimSpace(body)) == 0 {
		return true
	}
	var answer struct {
		Message string `json:"message"`
	}
	return json.Unmarshal(body, &answer) == nil && strings.Contains(strings.ToLower(answer.Message), "does not contain subevaluation")
}

func params(ids ...int64) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.FormatInt(id, 10)
	}
	return texts
}
