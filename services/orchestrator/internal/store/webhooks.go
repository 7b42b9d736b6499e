package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/webhook"
)

// Webhooks stores webhooks and their messages.
type Webhooks struct{ write, read *sqlx.DB }

// NewWebhooks returns the Webhooks of a migrated database. A round of a webhook needs two connections of write.
func NewWebhooks(write, read *sqlx.DB) *Webhooks { return &Webhooks{write: write, read: read} }

const (
	webhookColumns = ` w.id::text, w.name, w.format, w.filter, w.origin, w.sealed, w.created_by, w.created_at, w.state, w.reason, w.failures,
    w.failing_since, w.error, w.delivered_at, w.due_at, w.active_since`
	// waitingWebhookSQL counts up to one more than webhook.MaxWaiting. It relies on webhook_deliveries_waiting.
	waitingWebhookSQL = `, (SELECT count(*) FROM (SELECT 1 FROM orchestrator.webhook_deliveries d
        WHERE d.webhook_id = w.id AND d.state = 'waiting' LIMIT %d) c)`
	fromWebhooks  = ` FROM orchestrator.webhooks w`
	addWebhookSQL = `
INSERT INTO orchestrator.webhooks (id, name, format, filter, origin, sealed, created_by, created_at, state, due_at, active_since)
SELECT $1::uuid, $2, $3, $4::jsonb, $5, $6, $7, $8, $9, $8, $10 WHERE (SELECT count(*) FROM orchestrator.webhooks) < $11`
	// updateWebhookSQL keeps a webhook disabled that was disabled since it was read, unless an operator enables it.
	updateWebhookSQL = `
UPDATE orchestrator.webhooks SET state = CASE WHEN $2 = 'active' AND NOT $9 THEN state ELSE $2 END, reason = CASE WHEN $2 = 'active' AND NOT $9 THEN reason ELSE $3 END,
    failures = $4, failing_since = $5, error = $6, delivered_at = coalesce($7, delivered_at), due_at = $8,
    active_since = CASE WHEN $9 THEN $10 ELSE active_since END
WHERE id = $1::uuid`
	// activeWebhooksSQL relies on webhook_deliveries_waiting.
	activeWebhooksSQL = `
SELECT w.id::text FROM orchestrator.webhooks w WHERE w.state = 'active'
    AND EXISTS (SELECT FROM orchestrator.webhook_deliveries d WHERE d.webhook_id = w.id AND d.state = 'waiting') ORDER BY w.due_at`
	// aboutSQL relies on the primary keys.
	aboutSQL = `
SELECT o.id::text, o.plan, coalesce(r.body #>> '{plan,id}', ''), coalesce(r.body #>> '{context,globalAccountId}', ''),
    coalesce(r.body #>> '{context,subaccountId}', ''), coalesce(r.body #>> '{runtime,name}', ''), coalesce(r.body #>> '{runtime,shootName}', ''),
    coalesce(r.body #>> '{runtime,region}', '')
FROM orchestrator.operations o JOIN orchestrator.requests r ON r.operation_id = o.id WHERE o.id = ANY($1::uuid[])`
	// queueSQL keeps the order of the messages. A webhook that was deleted meanwhile gets none.
	queueSQL = `
INSERT INTO orchestrator.webhook_deliveries (webhook_id, message_id, subject, kind, event, created_at, state, attempts, status, error, attempted_at)
SELECT v.webhook_id::uuid, v.message_id, v.subject, v.kind, v.event, v.created_at, v.state, v.attempts, v.status, v.error, v.attempted_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], $8::int4[], $9::int4[], $10::text[],
    $11::timestamptz[]) WITH ORDINALITY AS v(webhook_id, message_id, subject, kind, event, created_at, state, attempts, status, error, attempted_at, n)
JOIN orchestrator.webhooks w ON w.id = v.webhook_id::uuid ORDER BY v.n
ON CONFLICT (webhook_id, message_id) DO NOTHING`
	messageColumns = `SELECT id, webhook_id::text, message_id, subject, kind, event, created_at, state, attempts, status, error, attempted_at
FROM orchestrator.webhook_deliveries`
	// nextMessagesSQL relies on webhook_deliveries_waiting.
	nextMessagesSQL   = messageColumns + ` WHERE webhook_id = $1::uuid AND state = 'waiting' ORDER BY id LIMIT $2`
	recordMessagesSQL = `
UPDATE orchestrator.webhook_deliveries d SET state = v.state, attempts = v.attempts, status = v.status, error = v.error, attempted_at = v.attempted_at
FROM unnest($1::int8[], $2::text[], $3::int4[], $4::int4[], $5::text[], $6::timestamptz[]) AS v(id, state, attempts, status, error, attempted_at)
WHERE d.id = v.id AND d.state = 'waiting'`
	// unannouncedSQL relies on orchestrations_unannounced.
	unannouncedSQL = `
SELECT id::text, type, state, description, parameters, updated_at FROM orchestrator.orchestrations
WHERE announced IS DISTINCT FROM state ORDER BY arrived LIMIT 100 FOR UPDATE SKIP LOCKED`
	announcedSQL = `
UPDATE orchestrator.orchestrations o SET announced = v.state FROM unnest($1::uuid[], $2::text[]) AS v(id, state) WHERE o.id = v.id`
	// forgetMessagesSQL relies on webhook_deliveries_ended.
	forgetMessagesSQL = `
DELETE FROM orchestrator.webhook_deliveries WHERE id = ANY(ARRAY(
    SELECT id FROM orchestrator.webhook_deliveries WHERE state <> 'waiting' AND created_at < $1 ORDER BY created_at LIMIT 5000))`
)

// Webhooks returns all webhooks, by name.
func (s *Webhooks) Webhooks(ctx context.Context) ([]webhook.Webhook, error) {
	found, err := scanWebhooks(ctx, s.read, `SELECT`+webhookColumns+`, 0`+fromWebhooks+` ORDER BY w.name`)
	if err != nil {
		return nil, fmt.Errorf("read webhooks: %w", err)
	}
	return found, nil
}

// List returns all webhooks with the numbers of their waiting messages, by name.
func (s *Webhooks) List(ctx context.Context) ([]webhook.Webhook, error) {
	found, err := scanWebhooks(ctx, s.read, `SELECT`+webhookColumns+fmt.Sprintf(waitingWebhookSQL, webhook.MaxWaiting+1)+fromWebhooks+` ORDER BY w.name`)
	if err != nil {
		return nil, fmt.Errorf("read webhooks: %w", err)
	}
	return found, nil
}

// Webhook returns a webhook with the number of its waiting messages. The error is ErrNotFound if there is none with the id.
func (s *Webhooks) Webhook(ctx context.Context, id string) (*webhook.Webhook, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil, ErrNotFound
	}
	query := `SELECT` + webhookColumns + fmt.Sprintf(waitingWebhookSQL, webhook.MaxWaiting+1) + fromWebhooks + ` WHERE w.id = $1::uuid`
	found, err := scanWebhooks(ctx, s.read, query, parsed.String())
	if err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	}
	if len(found) == 0 {
		return nil, ErrNotFound
	}
	return &found[0], nil
}

func scanWebhooks(ctx context.Context, db *sqlx.DB, query string, args ...any) ([]webhook.Webhook, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []webhook.Webhook
	for rows.Next() {
		var w webhook.Webhook
		var filter []byte
		var failing, delivered sql.NullTime
		if err := rows.Scan(&w.ID, &w.Name, &w.Format, &filter, &w.Origin, &w.Sealed, &w.CreatedBy, &w.CreatedAt, &w.State, &w.Reason,
			&w.Failures, &failing, &w.Error, &delivered, &w.DueAt, &w.ActiveSince, &w.Waiting); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(filter, &w.Filter); err != nil {
			return nil, fmt.Errorf("webhook %s: decode the filter: %w", w.ID, err)
		}
		w.CreatedAt, w.DueAt, w.ActiveSince, w.FailingSince, w.DeliveredAt = w.CreatedAt.UTC(), w.DueAt.UTC(), w.ActiveSince.UTC(), utc(failing), utc(delivered)
		found = append(found, w)
	}
	return found, rows.Err()
}

// Add stores a valid webhook. The error is webhook.ErrTooMany if there are webhook.Max, and webhook.ErrNameTaken if another one has its name.
func (s *Webhooks) Add(ctx context.Context, w *webhook.Webhook) error {
	filter, err := json.Marshal(&w.Filter)
	if err != nil {
		return fmt.Errorf("encode the filter: %w", err)
	}
	result, err := s.write.ExecContext(ctx, addWebhookSQL, w.ID, w.Name, string(w.Format), clean(string(filter)), w.Origin, w.Sealed, clean(w.CreatedBy),
		w.CreatedAt, string(w.State), w.ActiveSince, webhook.Max)
	if postgres.IsUniqueViolation(err, "") {
		return webhook.ErrNameTaken
	}
	if err != nil {
		return fmt.Errorf("write webhook: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return webhook.ErrTooMany
	}
	return nil
}

// Drop deletes a webhook with its messages. The error is ErrNotFound if there is none with the id.
func (s *Webhooks) Drop(ctx context.Context, id string) error {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return ErrNotFound
	}
	result, err := s.write.ExecContext(ctx, `DELETE FROM orchestrator.webhooks WHERE id = $1::uuid`, parsed.String())
	if err != nil {
		return fmt.Errorf("delete webhook: %w", err)
	}
	if n, err := result.RowsAffected(); err == nil && n == 0 {
		return ErrNotFound
	}
	return nil
}

// Update stores the state of a webhook.
func (s *Webhooks) Update(ctx context.Context, w *webhook.Webhook) error {
	return updateWebhook(ctx, s.write, w, true)
}

func updateWebhook(ctx context.Context, db sqlx.ExecerContext, w *webhook.Webhook, enables bool) error {
	_, err := db.ExecContext(ctx, updateWebhookSQL, w.ID, string(w.State), clean(w.Reason), w.Failures, nullTime(w.FailingSince), clean(w.Error),
		nullTime(w.DeliveredAt), w.DueAt, enables, w.ActiveSince)
	if err != nil {
		return fmt.Errorf("write webhook: %w", err)
	}
	return nil
}

// Reseal stores a target that was sealed with another key.
func (s *Webhooks) Reseal(ctx context.Context, id, sealed string) error {
	if _, err := s.write.ExecContext(ctx, `UPDATE orchestrator.webhooks SET sealed = $2 WHERE id = $1::uuid`, id, sealed); err != nil {
		return fmt.Errorf("write webhook: %w", err)
	}
	return nil
}

// Active returns the ids of the active webhooks with waiting messages.
func (s *Webhooks) Active(ctx context.Context) ([]string, error) {
	var found []string
	if err := s.read.SelectContext(ctx, &found, activeWebhooksSQL); err != nil {
		return nil, fmt.Errorf("find webhooks with messages: %w", err)
	}
	return found, nil
}

// Exclusively runs f unless another call for the same webhook is running in any process, and reports whether it ran. The lock ends with the
// connection, so a killed process does not block others.
func (s *Webhooks) Exclusively(ctx context.Context, id string, f func(ctx context.Context) error) (bool, error) {
	return exclusively(ctx, s.write, "webhook "+id, f)
}

// About describes the operations that are not archived.
func (s *Webhooks) About(ctx context.Context, operationIDs []string) (map[string]webhook.About, error) {
	var list array
	for _, id := range operationIDs {
		if parsed, err := uuid.Parse(id); err == nil {
			list.raw(parsed.String())
		}
	}
	rows, err := s.read.QueryContext(ctx, aboutSQL, &list)
	if err != nil {
		return nil, fmt.Errorf("read operations for webhooks: %w", err)
	}
	defer rows.Close()
	found := map[string]webhook.About{}
	for rows.Next() {
		var id string
		var a webhook.About
		if err := rows.Scan(&id, &a.Plan, &a.PlanID, &a.GlobalAccount, &a.Subaccount, &a.RuntimeName, &a.Shoot, &a.Region); err != nil {
			return nil, fmt.Errorf("read operations for webhooks: %w", err)
		}
		found[id] = a
	}
	return found, rows.Err()
}

// Queue stores new messages, and returns their number. It ignores known messages.
func (s *Webhooks) Queue(ctx context.Context, messages []webhook.Message) (int, error) {
	return queueMessages(ctx, s.write, messages)
}

func queueMessages(ctx context.Context, db sqlx.ExecerContext, messages []webhook.Message) (int, error) {
	if len(messages) == 0 {
		return 0, nil
	}
	var hook, id, subject, kind, body, created, state, attempts, status, text, attempted array
	for i := range messages {
		m := &messages[i]
		hook.text(m.WebhookID)
		id.text(m.ID)
		subject.text(clean(m.Subject))
		kind.text(string(m.Kind))
		body.text(clean(m.Event))
		created.time(m.CreatedAt)
		state.text(string(m.State))
		attempts.int(int64(m.Attempts))
		status.int(int64(m.Status))
		text.text(clean(m.Error))
		attempted.time(m.AttemptedAt)
	}
	result, err := db.ExecContext(ctx, queueSQL, &hook, &id, &subject, &kind, &body, &created, &state, &attempts, &status, &text, &attempted)
	if err != nil {
		return 0, fmt.Errorf("write messages of webhooks: %w", err)
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// Next returns the next waiting messages of a webhook, in order.
func (s *Webhooks) Next(ctx context.Context, id string, limit int) ([]webhook.Message, error) {
	found, err := scanMessages(ctx, s.write, nextMessagesSQL, id, limit)
	if err != nil {
		return nil, fmt.Errorf("read messages of a webhook: %w", err)
	}
	return found, nil
}

// WebhookMessageFilter selects messages of a webhook; an empty state selects all.
type WebhookMessageFilter struct {
	State webhook.MessageState
	// Limit and Offset select a page, newest first.
	Limit, Offset int
}

// Messages returns a page of the messages of a webhook, newest first, and their number. It relies on webhook_deliveries_list and
// webhook_deliveries_waiting.
func (s *Webhooks) Messages(ctx context.Context, id string, f WebhookMessageFilter) (page []webhook.Message, total int, err error) {
	where, args := " WHERE webhook_id = $1::uuid", []any{id}
	if f.State != "" {
		where, args = where+" AND state = $2", append(args, string(f.State))
	}
	if err := s.read.GetContext(ctx, &total, `SELECT count(*) FROM orchestrator.webhook_deliveries`+where, args...); err != nil {
		return nil, 0, fmt.Errorf("count messages of a webhook: %w", err)
	}
	where += fmt.Sprintf(" ORDER BY id DESC LIMIT $%d OFFSET $%d", len(args)+1, len(args)+2)
	if page, err = scanMessages(ctx, s.read, messageColumns+where, append(args, f.Limit, f.Offset)...); err != nil {
		return nil, 0, fmt.Errorf("list messages of a webhook: %w", err)
	}
	return page, total, nil
}

func scanMessages(ctx context.Context, db *sqlx.DB, query string, args ...any) ([]webhook.Message, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []webhook.Message
	for rows.Next() {
		var m webhook.Message
		var attempted sql.NullTime
		if err := rows.Scan(&m.Number, &m.WebhookID, &m.ID, &m.Subject, &m.Kind, &m.Event, &m.CreatedAt, &m.State, &m.Attempts, &m.Status,
			&m.Error, &attempted); err != nil {
			return nil, err
		}
		m.CreatedAt, m.AttemptedAt = m.CreatedAt.UTC(), utc(attempted)
		found = append(found, m)
	}
	return found, rows.Err()
}

// Record stores the results of attempts, and the webhook. It does not enable a webhook.
func (s *Webhooks) Record(ctx context.Context, w *webhook.Webhook, messages []webhook.Message) error {
	var id, state, attempts, status, text, attempted array
	for i := range messages {
		m := &messages[i]
		id.int(m.Number)
		state.text(string(m.State))
		attempts.int(int64(m.Attempts))
		status.int(int64(m.Status))
		text.text(clean(m.Error))
		attempted.time(m.AttemptedAt)
	}
	return postgres.InTx(ctx, s.write, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, recordMessagesSQL, &id, &state, &attempts, &status, &text, &attempted); err != nil {
			return fmt.Errorf("write results of a webhook: %w", err)
		}
		return updateWebhook(ctx, tx, w, false)
	})
}

// Announce passes the orchestrations with a state that webhooks do not know to f, and stores the messages that f returns. It returns their
// number. Other processes skip these orchestrations meanwhile.
func (s *Webhooks) Announce(ctx context.Context, f func([]webhook.Change) ([]webhook.Message, error)) (n int, err error) {
	err = postgres.InTx(ctx, s.write, func(tx *sqlx.Tx) error {
		changes, err := unannounced(ctx, tx)
		if err != nil || len(changes) == 0 {
			return err
		}
		messages, err := f(changes)
		if err != nil {
			return err
		}
		if n, err = queueMessages(ctx, tx, messages); err != nil {
			return err
		}
		var id, state array
		for i := range changes {
			id.raw(changes[i].OrchestrationID)
			state.text(changes[i].State)
		}
		_, err = tx.ExecContext(ctx, announcedSQL, &id, &state)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("announce orchestrations: %w", err)
	}
	return n, nil
}

func unannounced(ctx context.Context, tx *sqlx.Tx) ([]webhook.Change, error) {
	rows, err := tx.QueryContext(ctx, unannouncedSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var changes []webhook.Change
	for rows.Next() {
		var c webhook.Change
		var parameters []byte
		if err := rows.Scan(&c.OrchestrationID, &c.Type, &c.State, &c.Description, &parameters, &c.OccurredAt); err != nil {
			return nil, err
		}
		var p struct{ DryRun bool }
		if err := json.Unmarshal(parameters, &p); err != nil {
			return nil, errors.New("decode parameters")
		}
		c.DryRun, c.OccurredAt = p.DryRun, c.OccurredAt.UTC()
		changes = append(changes, c)
	}
	return changes, rows.Err()
}

// Forget deletes up to 5,000 messages that were sent or dropped and are older than a time, and returns their number.
func (s *Webhooks) Forget(ctx context.Context, before time.Time) (int64, error) {
	result, err := s.write.ExecContext(ctx, forgetMessagesSQL, before)
	if err != nil {
		return 0, fmt.Errorf("forget messages of webhooks: %w", err)
	}
	return result.RowsAffected()
}
