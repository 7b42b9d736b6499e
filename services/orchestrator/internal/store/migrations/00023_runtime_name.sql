-- +goose Up

-- Search: the name that the customer gave the runtime.
CREATE INDEX requests_runtime_name ON orchestrator.requests ((body #>> '{runtime,name}'));
