"""The longer texts among the prompts of `pdm run batch-main`."""

CANAL_LOCK = """ A canal lock lifts boats from one level of water to another. It is a chamber of stone or
brick with a pair of gates at each end. To go up, a boat enters the empty chamber through the lower gates,
which are then closed behind it. The crew opens small doors, called paddles, in the upper gates. Water flows
in from above, by its own weight and without any pump, and lifts the boat. When the chamber is as full as
the upper canal, the pressure on both sides of the upper gates is the same, and they can be pushed open by
hand. Going down is the same in reverse: the boat enters a full chamber, and the water is let out below.
Each passage spends one chamber of water, which has to come from a lake, a river or a reservoir at the top.
""".strip()

BREAD = """
Bread needs four things: flour, water, salt and yeast. Mix 500 grams of flour with 10 grams of salt, stir 3
grams of dried yeast into 340 grams of lukewarm water, and pour it over the flour. Work it into a rough
dough, cover the bowl and let it rest for twenty minutes. Then knead it for eight to ten minutes, until it
is smooth and springs back when you press it. Put it back into the bowl, cover it, and let it rise for an
hour and a half, or until it has doubled. Fold it gently, shape it into a round loaf and leave it on a
floured board for another forty minutes. Meanwhile heat the oven to 230 degrees, with a heavy lidded pot
inside. Tip the loaf into the hot pot, cut a cross into its top, put the lid on and bake it for thirty
minutes. Take the lid off and bake it for fifteen minutes more, until the crust is dark brown. The loaf is
done when it sounds hollow if you knock on its bottom. Let it cool on a rack for an hour before you cut it:
the inside is still setting, and a loaf that is cut too soon turns gummy.
""".strip()

LIBRARY_NOTICE = """
To all readers of the town library. From the first of March the library opens later and closes later. On
Mondays, Tuesdays and Thursdays it will be open from ten in the morning until eight in the evening. On
Wednesdays it stays closed for the public, so that school classes can visit it. On Fridays and Saturdays it
will be open from nine until five. The reading room on the second floor will be closed from the third to the
twenty-first of March while its windows are replaced; the newspapers will lie on the ground floor, beside
the lending desk. Books may now be kept for four weeks instead of three, and each loan can be extended twice
unless another reader has asked for the book. Films and music may be kept for one week as before. The charge
for late returns does not change: ten cents a day for each item, and never more than five euros. Readers
under sixteen pay nothing. If you can't come during these hours, use the return box to the left of the main
door, which is emptied every morning. Questions are answered at the desk or by telephone. The library also
looks for volunteers who would read aloud to small children on Saturday mornings; please leave your name
with Mrs Okafor at the lending desk.
""".strip()

ISLAND_LETTER = """
Dear Nora, you asked how the winter on the island has been, and whether I regret having taken the post. The
short answer is that it has been long, and that I don't. The ferry has come on Tuesdays and Fridays when the
wind allowed it, which was about half the time. In January we had eleven days without it, and by the end of
them the shop had run out of butter, lamp oil and, worse, batteries. Nobody complained much. People here
keep a shelf for such weeks, and what one house lacks another has. I learned to bake flat bread on a pan and
to mend my own boots.

The school has nine children this year, from six to fourteen, all in one room. In the mornings the older
ones help the younger ones to read, and I sit with two or three at a time. In the afternoons we do
everything else together. We have measured the height of the tide each day since October and drawn it on a
strip of paper that now goes all around the room. The children saw for themselves, before I had said a word,
that the highest tides come with the full and the new moon. The youngest one asked me whether the moon could
be switched off for a night, so that we could see what the water would do. I said that I would ask.

My house stands above the harbour. It is small, and dry since Mr Haldane and his sons put new slates on the
roof. From the kitchen I see the light at the point and the seals on the flat rock below it. In the evenings
I read, or I walk over to the Haldanes, where there is always somebody who plays. I have been teaching
myself the fiddle. The dog leaves the room when I practise, which I take as honest advice.

You asked what I need. Please send seeds: beans, carrots, and the dark red lettuce that you had last summer.
Send coloured chalk, a good atlas if you can find a cheap one, and the second half of the novel, for
somebody left the first half on the ferry and the whole village wants to know how it ends. Come yourself in
May, if you can. The days are long then, the path along the cliffs is full of flowers, and the ferry keeps
its timetable. Bring boots. With love, Agnes.
""".strip()

WATER_REPORT = """
Minutes of the meeting on the water supply. Present were the mayor, the engineer of the waterworks, two
farmers, the owner of the brewery and about thirty residents. The engineer reported first. The spring above
the village gave 14 litres a second in April and 6 litres a second in August, the lowest figure since it was
first measured. The village uses about 5 litres a second on an ordinary day and up to 9 on a hot one. On
four days in August the tank was empty by the evening, and the upper streets had no water until the next
morning. A quarter of all water, she said, never reaches a tap: it leaks out of the old pipe under the main
street, which was laid in 1931.

She put three plans before the meeting. The first is to replace the old pipe, which would take five months
and cost about 400,000 euros. The second is a second tank beside the first, which would fill at night and
last through the day; it would cost 250,000 euros and be ready within a year. The third is a connection to
the supply of the town in the valley, with a pump. It would cost 600,000 euros and a further 20,000 a year
for electricity, but would make the village safe even if the spring fell dry.

The farmers asked that water for animals be kept apart from any limits, and offered to collect rain from
their roofs for the fields. The owner of the brewery said that he could move his washing of bottles to the
night hours at once, which would save one litre a second by day. A resident of the upper street asked why
nothing had been done after the dry summer three years ago. The mayor answered that the money had gone into
the roof of the school, and that he would decide the same way again.

After an hour the meeting voted. The pipe is to be replaced, beginning in spring, by 27 votes to 4. The
second tank is to be planned now and built when the pipe is done, by 19 votes to 11. The connection to the
valley was put off, with a new report due in two years. Until the pipe is replaced, gardens are not to be
watered between seven in the morning and nine in the evening from June to September. The next meeting is on
the second Monday of November.
""".strip()
