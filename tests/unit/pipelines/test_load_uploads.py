"""By what an upload is known: 60 bits of a hash of its content, where there is one, else by its whole id."""

from uuid import RFC_4122, UUID

from chalicelib.pipelines.load import upload_content, upload_id


def test_an_id_says_60_bits_of_the_hash_and_they_alone_are_compared():
    def flipped(bit):
        return (1 << 255 - bit).to_bytes(32)

    ids = [upload_id(content) for content in (bytes(32), *map(flipped, range(256)))]

    assert {(made.version, made.variant) for made in ids} == {(8, RFC_4122)}
    assert len({*ids}) == 257
    assert len({*map(upload_content, ids)}) == 61  # of the first 64 bits four are the version


def test_an_upload_of_which_nothing_was_told_is_known_by_its_whole_id():
    told, other = UUID("fd0e8a3c-5b1e-4c1c-8a4e-1b0c5f0d9a01"), UUID("fd0e8a3c-5b1e-4c1c-8a4e-1b0c5f0d9a02")

    assert upload_id(None).version == 4
    assert upload_content(told) != upload_content(other)
