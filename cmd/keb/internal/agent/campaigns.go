package agent

import (
	"context"
	"net/url"
	"strconv"

	"github.com/kyma-project/keb/libs/api/operator"
)

type batchesArgs struct {
	ID       string                    `json:"id,omitempty" jsonschema:"ID of a batch: shows it with a page of its operations. Without it, all batches are listed, newest first."`
	State    operator.BatchResultState `json:"state,omitempty" jsonschema:"With id: only operations in this state. skipped: the action was no longer possible."`
	Page     int                       `json:"page,omitempty" jsonschema:"Page, from 1."`
	PageSize int                       `json:"page_size,omitempty" jsonschema:"Rows per page: 1 to 100, default 20."`
}

type orchestrationsArgs struct {
	ID       string               `json:"id,omitempty" jsonschema:"ID of an orchestration: shows it with a page of its operations. Without it, all orchestrations are listed, newest first."`
	State    operator.MemberState `json:"state,omitempty" jsonschema:"With id: only operations in this state."`
	Page     int                  `json:"page,omitempty" jsonschema:"Page, from 1."`
	PageSize int                  `json:"page_size,omitempty" jsonschema:"Rows per page: 1 to 100, default 20."`
}

// memberRow are the members of an operation of an orchestration in a list.
var memberRow = []string{
	"operationID", "instanceID", "shootName", "servicePlanName", "globalAccountID", "state", "description", "dryRun", "canary", "retriedAs",
	"maintenanceWindowBegin", "maintenanceWindowEnd",
}

func (s *server) addCampaigns() {
	read(s, tool{
		"batches", "Show batches",
		"Lists batches (a retry, cancel or skip of all operations that matched a filter) with their progress, or shows one with the result of each operation.",
	}, func(ctx context.Context, a batchesArgs) (any, error) {
		return s.listOrOne(ctx, one{"batch", "/batches", a.ID, string(a.State), a.Page, a.PageSize}, nil)
	})
	read(s, tool{
		"orchestrations", "Show orchestrations",
		"Lists orchestrations (upgrades of many runtimes) with their state, or shows one: why it is paused or has failed, how many operations are in which " +
			"state, and a page of its operations.",
	}, func(ctx context.Context, a orchestrationsArgs) (any, error) {
		return s.listOrOne(ctx, one{"orchestration", "/orchestrations", a.ID, string(a.State), a.Page, a.PageSize}, memberRow)
	})
}

// one selects an object with a page of its operations, or without an ID a page of all objects.
type one struct {
	what, path, id, state string
	page, pageSize        int
}

func (s *server) listOrOne(ctx context.Context, o one, row []string) (any, error) {
	q := url.Values{"page_size": {pageSize(o.pageSize, usualPage, maxPage)}}
	if o.page > 0 {
		q.Set("page", strconv.Itoa(o.page))
	}
	if o.id == "" {
		return s.get(ctx, o.path, q)
	}
	path := o.path + "/" + url.PathEscape(o.id)
	out, err := s.find(ctx, o.what, o.id, "call the tool without id to list them", path)
	if err != nil {
		return nil, err
	}
	put(q, "state", o.state)
	operations, err := s.get(ctx, path+"/operations", q)
	if err != nil {
		return nil, err
	}
	if row != nil {
		operations["data"] = pickAll(operations["data"], row...)
	}
	out["operations"] = operations
	return out, nil
}
