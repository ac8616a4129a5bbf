"""What a well-formed program is: the rules that `verify` checks, each with the message of a program that breaks it.

The page of the instruction set lists them; the tests break each of them, and see that `verify` says nothing that no rule is about.
"""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A rule in words; `says` is a regular expression that the messages of its faults match."""

    text: str
    says: str


SECTIONS: dict[str, tuple[Rule, ...]] = {
    "Headers": (
        Rule("Names of the program, of arguments and kernels are Unicode text.", "expects text|is no valid Unicode"),
        Rule("An argument has one of the roles, 0 to 2³² − 1 sticks, and elements of 1, 2 or 4 bytes. Those of 2 are f16 or, where it says so, another float of 16 bits or a pair of bytes; those of 1 are floats.", "role expects|sticks expects a value|element_bytes expects 1, 2 or 4|half "),
        Rule("A kernel runs on 1 to 1024 cores, and on no more than the target has.", "cores expects|but the target has"),
        Rule("Each unit has at most one program in a kernel.", "units expects"),
        Rule("Core tables have a value of −2⁴⁰ to 2⁴⁰ per core, groups the number of a core of the kernel per core.", "values, one per core|expects values of -?[0-9]+ to"),
        Rule("A kernel has at most 65,534 descriptors, tables and groups each.", "can be named"),
        Rule("A channel is declared once, between two units, with a token of 0 to 65,535 and 0 to 2³² − 1 tokens left.", "is declared twice|channel expects|token expects|leftover expects"),
    ),
    "Descriptors": (
        Rule("A descriptor is of memory (ddr) and names an argument, or of LX and names none.", "space expects|needs an argument|has no argument|is not one of the .* arguments"),
        Rule("It has 0 to 4 inner dims, each of an extent of at least 1 and with a stride; all of it is less than 2³² bytes.", "equal ranks|extent expects|more than a descriptor can"),
        Rule("Strides and steps are −2³⁷ to 2³⁷, `rotate_step` not negative; `base` is 0 to 2⁴⁰; there are eight level steps.", "expects values of -[0-9]+ to [0-9]+|base expects|level_step expects"),
        Rule("It names core tables of its kernel.", "is not one of the .* tables"),
        Rule("Only descriptors of memory have a lane_stride, as those of elements of 1 byte must; those that have one have no corelet_step.", "has a lane_stride|have a lane_stride|element descriptor has no corelet_step"),
        Rule("There are 1 to 255 buffers; with one, rotate_levels and rotate_step are 0.", "buffers expects|rotate_levels|rotate_step"),
        Rule("The pad is zero, −inf or +inf.", "pad expects"),
        Rule("There are at most two bounds. What they name exists, their steps have 16 bits, without sign, and a step needs what it counts.", "bounds, but got|dim_step expects|level_step expects a value|corelet_step expects|inner dims|dim_step needs|level expects|level_step needs|limit "),
    ),
    "Words": (
        Rule("A word is an instruction of the table, on a unit that has it, with operands as the table says.", "cannot run on|unknown opcode|expects [a-z0-9_]+ (in |to be|to name)|unknown instruction"),
        Rule("Source ids are not negative and name a source, where there is a table of them.", "source id|source expects|sources$"),
        Rule("Loops nest: `endl` ends the innermost open loop, whose level it names; a level is opened once at a time; every loop ends.", "'endl' |a level that is not open|is not ended"),
        Rule("The program of a unit ends in `halt`, outside of loops, which stands nowhere else.", "'halt'"),
        Rule("Words of bodies stand in the body of a `rep`, which is complete, and no other words stand there.", "inside the body of a 'rep'|'rep' has a body"),
        Rule("`par` is followed by as many streams as it says, each of a FIFO of its own.", "'par' expects"),
        Rule("`wait` and `sig` name another unit.", "names its own unit"),
        Rule("What `push` transposes is a multiple of 64 entries; `mm` has 1 to 256 rows, and one stands above each `pto`.", "transposes blocks|rows, but got|above it"),
        Rule("Loops of one region have the same trips in all units that have it, and a unit has one of a region.", "region"),
        Rule("Every FIFO has as many entries pushed as popped in a kernel.", "pushes .* pops"),
        Rule("Of every channel as many tokens are left as the kernel declares.", "tokens are left over|tokens are posted|no word posts"),
        Rule("In a group of a move from memory every core that another one receives from reads for itself, and all tables of the descriptor, and of that of its indices, have one value for both.", "receives from core|differs between them"),
    ),
    "Words and their descriptors": (
        Rule("Operands are descriptors of the space that the instruction, and the unit, says.", "to be of (ddr|lx)"),
        Rule("What `move` names in LX is given. Over the ring it has a group, and no index. Into memory it has no group. Only loads from memory are ahead.", "expects a (src|dst)$|over the ring|has a group|may be ahead"),
        Rule("The two descriptors of a `move` have as many entries, of elements of one size and format; where memory has floats of 1 byte, LX has floats of 2.", "moves .* entries into|changes the element size|changes the elements"),
        Rule("Levels over which a descriptor steps are open; of those that choose its buffer one is.", "which is not open|chooses the buffer"),
        Rule("Buffers lie as far apart as one spans.", "has buffers of"),
        Rule("A corelet_step is that of a corelet unit.", "exists once per core"),
        Rule("What a word writes has no two live positions, on both corelets, that share a stick or element; of a scatter, those that no index moves.", "share a"),
        Rule("What a load fills in LX is contiguous, in the order of the walk.", "must be contiguous"),
        Rule("What fills elements of 2 bytes is the f32 of a float of their format.", "is no (b?f16)"),
        Rule("`splat` descriptors belong to `push`.", "repeats lane 0"),
        Rule("Elements have the size and format of those of their argument.", "but argument"),
        Rule("The base, each value of the core table, strides and steps are multiples of the unit: a stick, or of element descriptors an element.", "no multiple of"),
        Rule("Live positions lie inside of the argument, or of LX, on every core and in every trip.", "reaches "),
        Rule("What one core reaches through a descriptor in a kernel is no longer than an address can span.", "can be addressed"),
        Rule("`index` is a descriptor of 4-byte elements with an entry for each position of the inner dim that it replaces, which exists; indices are below a size.", "for its indices|has a dim or size|expects dim in|expects an index for each"),
    ),
    "Bodies": (
        Rule("A `rep` has at least one group and one stick.", "at least one group"),
        Rule("`vin` stands in `start` or `each`, `vout` in `each` or `end`, words that count or combine sticks in `each`.", "but got one in"),
        Rule("A register is written above where it is read: in `start` by words there; in `each` by these and words there; in `end` by all but those of `each` that are neither `vacc` nor constants.", "before it is defined|holds a value of"),
        Rule("What a word reads has not been overwritten since by another stick or group.", "overwrites it"),
        Rule("An accumulator has one `vacc` in a body.", "an accumulator of its own"),
        Rule("Only results that are numbers round, and only what rounds names a float of 16 bits.", "gives integers|does not round"),
    ),
}  # fmt: skip
RULES = tuple(rule for rules in SECTIONS.values() for rule in rules)
