-- Mixed records, the same each time: names in four scripts, quotes and markup, line breaks, nulls, every kind of number.
create table bench.{name} as
select g as id
     , md5('reference ' || g)::uuid as reference
     , (array['Müller & Söhne', 'Café "Zur Post"', '<Ανθοπωλείο>', '東京 支店', 'O''Brien; Smith', 'Straße 🚲'])[1 + g % 6]
       || ' ' || g as name
     , 'Hauptstraße ' || g % 311 as street
     , case when g % 7 = 0 then null
            when g % 11 = 0 then e'first line\nand a second one, "quoted" & more'
            else 'nothing to remark, as far as anybody knows' end as note
     , (array['open', 'closed', 'in progress', 'unknown'])[1 + g % 4] as status
     , 'C-' || lpad((g * 7919::bigint % 100000)::text, 5, '0') as code
     , (g * 37 % 1000000)::numeric(12, 2) / 100 as amount
     , case when g % 5 = 0 then null else (g % 9973)::numeric / 7919 end as rate
     , sqrt(g) as share
     , (20 + 15 * sin(g))::float4 as temperature
     , (g * 31 % 100000)::int4 as visitors
     , (g % 128)::int2 as district
     , g % 3 = 0 as active
     , date '1999-12-31' + g % 9000 as opened
     , time '06:00' + g % 43200 * interval '1 second' as closes
     , timestamp '2020-02-29 23:59:59.5' + g * interval '61 seconds' as measured
     , case when g % 13 = 0 then null else timestamptz '2021-03-28 01:30:00+00' + g * interval '17 seconds' end as updated
     , jsonb_build_object('kind', g % 17, 'tags', jsonb_build_array('a', 'b & c')) as properties
     , decode(md5('picture ' || g), 'hex') as picture
  from generate_series(1, {records}) as g
