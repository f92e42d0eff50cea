-- Refreshes are on only with a way back. A CHECK lets pass what it doesn't know (`not true or null`): so it did a switch
-- that was on without one, which is off from now on. No other CHECK is unknown where it shouldn't be.

update refresh.switch set enabled = false where enabled and rollback is null;
alter table refresh.switch
    drop constraint enabled_has_a_way_back,
    add constraint enabled_has_a_way_back check ((not enabled or rollback ~ '^[0-9a-f]{64}$') is true);
