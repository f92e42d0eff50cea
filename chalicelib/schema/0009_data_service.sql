-- The built-in data service keeps to the contract that a remote one keeps to (docs/data-service.openapi.yaml): a deleted
-- key is never started again, also one that was deleted before it was known, for a start that is still on its way may
-- come later and would leave files that nobody removes.

alter table dataset.export
    alter job_id drop not null,                    -- null: deleted before it was started
    add deleted_at timestamptz,
    add constraint export_has_a_job_unless_it_is_deleted check (job_id is not null or deleted_at is not null);
