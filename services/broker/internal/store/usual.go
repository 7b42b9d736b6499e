package store

import (
	"context"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

const (
	// usualOf is the number of newest operations of each type that tell how long such operations take, and usualLeast how many of one kind
	// there must be.
	usualOf    = 500
	usualLeast = 3
	// usualSQL relies on operations_succeeded.
	usualSQL = `SELECT o.type, r.plan_name, o.suspension,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM o.updated_at - o.created_at))
	FROM unnest($1::text[]) AS t (type) CROSS JOIN LATERAL (
		SELECT type, instance_id, suspension, created_at, updated_at FROM broker.operations
		WHERE type = t.type AND state = 'succeeded' ORDER BY seq DESC LIMIT $2) o
	JOIN broker.runtimes r ON r.instance_id = o.instance_id
	GROUP BY o.type, r.plan_name, o.suspension HAVING count(*) >= $3`
)

// Usual returns how long operations usually take: the median of the newest successful ones of each kind.
func (s *Store) Usual(ctx context.Context) (map[instance.Kind]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var types []string
	for _, t := range event.OperationTypes() {
		types = append(types, string(t))
	}
	rows, err := s.db.QueryContext(ctx, usualSQL, postgres.Array(types), usualOf, usualLeast)
	if err != nil {
		return nil, wrap(ctx, "read usual durations", err)
	}
	defer rows.Close()
	usual := map[instance.Kind]time.Duration{}
	for rows.Next() {
		var k instance.Kind
		var seconds float64
		if err := rows.Scan(&k.Type, &k.Plan, &k.Suspension, &seconds); err != nil {
			return nil, wrap(ctx, "read usual durations", err)
		}
		usual[k] = time.Duration(seconds * float64(time.Second))
	}
	return usual, wrap(ctx, "read usual durations", rows.Err())
}
