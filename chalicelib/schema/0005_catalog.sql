-- What the catalogue says of itself (`leaseway apply` of a catalog.yaml): one row, in the place of the settings.

create table dataset.catalog (
    is_the_one boolean     not null default true,
    body       jsonb       not null,
    applied_at timestamptz not null,
    constraint catalog_pkey primary key (is_the_one),
    constraint catalog_is_one check (is_the_one)
);
grant select, insert, update, delete on dataset.catalog to leaseway_app;
